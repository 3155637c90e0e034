// Runs compiled programs on a GPU: one rank's, calls as kernel launches on the streams that they are given.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/cuda/memory.h"
#include "exec/cuda/compile.h"
#include "exec/cuda/footprint.h"
#include "exec/cuda/kernel_plan.h"
#include "exec/cuda/mailbox.h"
#include "exec/cuda/messages.h"
#include "exec/cuda/plain_copies.h"
#include "exec/host/executor.h"

namespace muster::cuda {

// A program in a GPU's memory, with its scratch; or the copies that it comes to. Must outlive the kernels that run it, one at
// a time.
class LoadedPlan {
 public:
  LoadedPlan(int device, const KernelImage& image);
  // Of connections, each once: what its kernels need.
  const std::vector<uint32_t>& ends() const { return used_ends_; }
  const std::vector<uint64_t>& sent() const { return sent_; }  // KernelImage::sent
  // Only the runtime's copies, no kernel.
  bool copies() const { return copies_.has_value(); }
  bool windows() const { return windows_; }
  bool own_lanes() const { return own_lanes_; }  // KernelImage
  uint32_t channels() const { return channels_; }
  // Null: it only moves, and any serves.
  const void* kernel() const { return kernel_; }
  const Footprint& footprint() const { return footprint_; }
  const std::byte* scratch() const { return scratch_.data(); }

 private:
  friend class KernelExecutor;
  CallShape call_;
  std::optional<std::vector<PlainCopy>> copies_;  // then no kernel runs, and there are no tables
  uint32_t channels_;
  uint64_t longest_pass_;
  bool windows_, own_lanes_;
  const void* kernel_;
  Footprint footprint_;
  std::vector<uint32_t> used_ends_;
  std::vector<uint64_t> sent_;
  DeviceMemory tables_, scratch_;
  KernelArgs args_{};  // what doesn't change from call to call
};

// Equal as long as it is the same wait.
struct KernelWait {
  int rank = -1;  // whom for
  uint32_t channel = 0;
  int64_t mark = 0;
  friend bool operator==(const KernelWait&, const KernelWait&) = default;
};

// Of one thread at a time; abort(), mismatch() and wait() may be called from any.
class KernelExecutor {
 public:
  KernelExecutor(int device, int rank, const MailboxShape& shape);
  // Kernels must have ended.
  ~KernelExecutor() = default;
  KernelExecutor(const KernelExecutor&) = delete;
  KernelExecutor& operator=(const KernelExecutor&) = delete;

  // Two mailboxes of the executor's shape, in addresses that this rank's GPU reaches, each with what owns it:
  // this rank's, where the peer's messages come, and the peer's.
  struct Connection {
    std::shared_ptr<std::byte> here, there;
  };
  // Once, before the first call; by peer. That with itself is not looked at, and those without memory are
  // connected later. `first`: the number of each connection's first message, of which `taken` counters are
  // then to say so many.
  void connect(const std::vector<Connection>& connections, uint64_t first = 0);
  bool connected() const { return connected_; }
  // To one peer, before messages to and from it; nothing where that is so already.
  void connect_to(int peer, const Connection& connection, uint64_t first = 0);
  // One end of another connection, by its number (mailbox.h), before messages of it. Its memory stays as long
  // as kernels run.
  void connect_end(uint32_t number, const KernelEnd& end);
  // When its kernels have ended: lets go of mailboxes. No calls from then on.
  void disconnect() { connections_.clear(); }

  struct Buffers {
    const void* input = nullptr;
    void* output = nullptr;
    // Inputs and outputs of all ranks, by rank: GPU memory with tables of addresses. Null: there are no
    // windows.
    std::byte* const* inputs = nullptr;
    std::byte* const* outputs = nullptr;
  };
  struct Weight {
    uint64_t bits = 0;         // in the element type
    const void* at = nullptr;  // not null: where kernels find it when they run
  };
  struct BoundCall {
    const LoadedPlan* plan = nullptr;
    Buffers buffers;
    uint64_t fingerprint = 0;
    Weight weight;
  };
  // As one launch on the stream, after what is there already: one call, or several that fit (fusion.h). All calls of a
  // rank must be in one order, which is the same on all ranks, however they are launched. Calls that are captured
  // are replayed with the same fingerprint.
  void run(std::span<const BoundCall> calls, StreamHandle stream);
  void run(const LoadedPlan& plan, const Buffers& buffers, uint64_t fingerprint, const Weight& weight,
           StreamHandle stream) {
    const BoundCall call{&plan, buffers, fingerprint, weight};
    run({&call, 1}, stream);
  }

  // A group of sends and receives, as one launch; in the order of calls, too.
  void run(const MessageImage& group, StreamHandle stream);

  // Kernels end wherever they are, and those that are started later do at their first wait. What they leave
  // is undefined, here and at their peers.
  void abort();
  // A message that belonged to another call; the channel that met it has ended.
  std::optional<FingerprintMismatch> mismatch() const;
  // What a kernel has been waiting for for long.
  std::optional<KernelWait> wait() const;
  int waiting_for() const { return wait().value_or(KernelWait{}).rank; }

  // Threads of a block at most, a multiple of 32.
  uint32_t most_threads = kMostKernelThreads;

 private:
  KernelArgs bind(const BoundCall& call) const;
  void copy(const std::vector<PlainCopy>& copies, const Buffers& buffers, StreamHandle stream) const;
  KernelReport& report() const { return *reinterpret_cast<KernelReport*>(report_.data()); }
  int device_, rank_;
  MailboxShape shape_;
  std::vector<Connection> connections_;  // by peer; keeps mailboxes. Null: not connected
  DeviceMemory ends_;
  bool connected_ = false;  // to all
  MessageTables tables_;
  PinnedMemory report_;
};

}  // namespace muster::cuda
