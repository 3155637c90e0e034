// A communicator's rank whose buffers are GPU memory. What does it is linked in where the library is built
// for GPUs (src/comm/cuda); everything else sees this.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/tuner.h"
#include "exec/group_message.h"
#include "exec/host/chunk_table.h"
#include "exec/host/executor.h"
#include "muster/bytes_sent.h"
#include "plan/gpu_choice.h"
#include "plan/planner.h"
#include "topology/cluster.h"

struct CUstream_st;

namespace muster {

// A rank of the communicator, seen from another one.
struct GpuPeer {
  std::string name;  // "rank 3 (host a, pid 17)"
  bool same_process = false;
  bool shares_memory = false;  // is on this rank's host
  // Where its process's Arena (device/host/arena.h) is mapped here, with what keeps it; null: it isn't.
  std::shared_ptr<std::byte> arena;
};

class Network;

// By what messages go between ranks that share no memory.
struct GpuNetwork {
  Network* network = nullptr;  // null: all ranks share memory
  std::vector<int> ranks;      // of the network, by rank of the communicator
  int first_lane = 0;          // from which on lanes are free
  bool sends_from_gpu = false;  // it reads what is sent out of GPU memory
  // Any thread: moves what can be moved; true if anything was. What breaks becomes the communicator's error.
  std::function<bool()> progress;
  std::function<void(const Error&)> fail;
  std::function<bool()> failed;
  std::chrono::nanoseconds patience{0};  // with a peer that takes nothing from a rank that leaves
};

// What a rank's GPU part knows of its communicator. May be used as long as that lives.
struct GpuSetting {
  std::string name;  // for errors
  uint64_t communicator = 0;
  int rank = 0;
  std::vector<GpuPeer> peers;  // by rank, this one too
  GpuNetwork network;
  // Whether that rank has let go of all memory of others, or ended.
  std::function<bool(int rank)> gone;
  // Why these two GPUs (bus ids) shall not reach each other's memory; empty: they may.
  std::function<std::string(const std::string& from, const std::string& to)> p2p_refusal;
  // What all ranks agreed on: hosts, and each rank's number among them.
  std::shared_ptr<const topology::Cluster> cluster;
  std::vector<int> host_of;
  std::string protocols;  // NCCL_PROTO
  // What a tuner plugin makes of a call; null: there is none.
  std::function<GpuWish(const CallShape& call, const GpuPlanInputs& inputs, const std::string& protocols)>
      tune;
  // How calls of a shape run, when the first one is made.
  std::function<void(const CallShape& call, const GpuChoice& choice)> planned;
};

struct GpuCall {
  CallShape shape;
  const ChunkTable* table = nullptr;  // of a V-variant
  uint64_t elements = 0;              // of a V-variant: of all parts together
  const void* send = nullptr;
  void* recv = nullptr;
  uint64_t weight_bits = 0;
  const void* weight_at = nullptr;
  uint64_t fingerprint = 0;
  CUstream_st* stream = nullptr;
};

// Sends and receives that run together.
struct GpuGroup {
  std::vector<GroupMessage> messages;
  std::vector<CUstream_st*>
      streams;  // one or more, each once: the group comes after what they have, and before what they get
};

// This rank's part of a collective that copy engines run: what it copies into peers' memory and its own.
struct GpuCopies {
  struct Copy {
    int peer = -1;  // whose memory it goes to
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    uint64_t bytes = 0;
  };
  std::vector<Copy> copies;
  uint64_t fingerprint = 0;
  CUstream_st* stream = nullptr;
};

struct GpuWait {
  int rank = -1;       // whom for
  uint64_t which = 0;  // one wait from the next
  friend bool operator==(const GpuWait&, const GpuWait&) = default;
};

// Of the thread that runs calls, but for abort(), mismatch() and wait(). Its end waits for what it has
// started, unless that was aborted, and then, a second at most, until other processes have let go of its
// memory.
class GpuRank {
 public:
  virtual ~GpuRank() = default;
  // Before the first call ranks connect: until connected(), all tell each other as many bytes, which
  // next_card() gives, and hear what all said, by rank.
  virtual bool connected() const = 0;
  virtual std::vector<std::byte> next_card() = 0;
  virtual void hear(std::span<const std::byte> cards) = 0;
  // Gives the call to its stream, at the latest in launch_added(): calls that follow each other may be one launch. All
  // other launches come behind it. What it sends.
  virtual BytesSent add(const GpuCall& call) = 0;
  virtual void launch_added() = 0;
  virtual BytesSent launch(const GpuGroup& group) = 0;
  // For copy engines ranks meet in a table of each (exec/cuda/copies.h): this rank's, for the others, and
  // theirs, by rank, once. Both throw where that can't be. Collective, but not of the thread that runs calls.
  virtual std::string meeting_table() = 0;
  virtual void hear_tables(std::span<const std::string> tables) = 0;
  // When connected: every rank writes to every other one's GPU itself, and it arrives. The same on all ranks.
  virtual bool all_reach_all() const = 0;
  // After hear_tables().
  virtual BytesSent launch(const GpuCopies& copies) = 0;
  // A copy that is made on the stream, for the call that is launched there next.
  virtual const std::byte* copy_of(const void* input, uint64_t bytes, CUstream_st* stream) = 0;
  virtual void abort() noexcept = 0;
  virtual std::optional<FingerprintMismatch> mismatch() const = 0;
  // What a kernel has been waiting for for long.
  virtual std::optional<GpuWait> wait() const = 0;
  // Waits for what was started, and lets go of others' memory. No calls from then on.
  virtual void leave() noexcept = 0;
};

struct GpuPointer {
  enum class Kind { host, device, any } kind = Kind::host;  // any: memory that all GPUs and the host reach
  int device = -1;                                          // that it was allocated on or for
};

// Other processes can begin to reach memory by `text` as long as `keep` is there.
struct GpuOffer {
  std::string text;
  std::shared_ptr<const void> keep;
};

class GpuLibrary {
 public:
  virtual ~GpuLibrary() = default;
  // Whether a call on this address is one on GPU memory (managed memory is, pinned host memory isn't).
  virtual bool holds(const void* p) const = 0;
  virtual GpuPointer inspect(const void* p) const = 0;
  // "GPU 1 (NVIDIA H200, 0000:1b:00.0)"
  virtual std::string describe(int device) const = 0;
  // The calling thread's GPU.
  virtual int current() const = 0;
  virtual std::unique_ptr<GpuRank> make_rank(GpuSetting setting, const PlanInputs& inputs,
                                             int device) const = 0;
  // Memory of the calling thread's current GPU. Throws unhandled_device_error.
  virtual void* allocate(size_t bytes) const = 0;
  virtual void release(void* p) const = 0;
  // What another process needs to reach a range, and the memory that it reaches so from its `device`; `whom`: whose it is, for
  // messages. Both throw where that can't be.
  virtual GpuOffer share(const void* p, size_t bytes) const = 0;
  virtual std::shared_ptr<std::byte> reach(const std::string& shared, int device, const std::string& whom) const = 0;
};

// Null: there are no GPUs, or the library was built without.
const GpuLibrary* gpu_library();

}  // namespace muster
