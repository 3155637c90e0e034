// One collective under way: an exchange of buffer descriptors where windows may serve, then the plan itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "comm/gpu_copies.h"
#include "comm/state.h"

namespace muster {

// What a rank tells the others about its buffers before a call that could use windows.
struct BufferDescriptor {
  uint64_t input = 0, output = 0;  // arena offsets, or addresses when all ranks share an address space
  uint64_t is_window = 0;
};
static_assert(sizeof(BufferDescriptor) <= kInlineBytes);

// Says that this rank may be using the others' buffers, for the length of a scope. Throws the communicator's error if it
// has one: after a failure nobody enters, since who fails looks who is in, and who enters looks for failures, each after it
// has shown itself.
class InWindows {
 public:
  explicit InWindows(Communicator::Impl& comm);
  ~InWindows();
  InWindows(const InWindows&) = delete;
  InWindows& operator=(const InWindows&) = delete;

 private:
  std::atomic<uint32_t>* flag_;  // null: a communicator of one rank
  uint32_t before_ = 0;          // it may be in a collective, too
};
// After a failure: returns when no other rank uses this one's buffers any more.
void await_others_leaving(const Communicator::Impl& comm) noexcept;

// Gives to their streams what calls on GPU memory have left for a launch of several. Before the thread that made them
// waits for anything or returns.
void launch_added(Communicator::Impl& comm);

class CollectiveRun {
 public:
  CollectiveRun(Communicator::Impl& comm, const Call& call);
  // Left unfinished, the call has failed, and its buffers may go as soon as it returns: not before the others let go of them.
  ~CollectiveRun() {
    leave_windows();
    if (run_ && mine_.is_window && comm_.failed()) [[unlikely]]
      await_others_leaving(comm_);
  }
  CollectiveRun(const CollectiveRun&) = delete;
  CollectiveRun& operator=(const CollectiveRun&) = delete;

  // This rank uses the others' buffers no more.
  void leave_windows() noexcept { in_windows_.reset(); }

  bool advance() {
    const bool moved = run_->advance();
    if (run_->done()) {
      if (exchanging_) [[unlikely]]
        finish_exchange();
      else
        finish();
    }
    return moved;
  }
  bool done() const { return !run_; }
  uint64_t fingerprint() const { return fingerprint_; }
  uint64_t sequence() const { return comm_.sequence; }
  int waiting_for() const { return run_ ? run_->waiting_for() : -1; }
  const Call& call() const { return call_; }

 private:
  void start_on_gpu();
  void connect_gpu();
  void launch_on_gpu();
  void launch_copies();
  void start_slots();
  void start(const CompiledPlan& plan, WindowTable windows, bool stream_slots);
  void finish() {
    if (trying_) plan_->trial.end();
    if (plan_->row) [[unlikely]]
      report();
    leave_windows();
    run_.reset();
    comm_.publish_end();
  }
  void report();
  void start_exchange();
  // `mine`: as many bytes as the plan is for, which all ranks will have of each other in comm_.descriptors.
  void exchange(const CompiledPlan& plan, void* mine, size_t bytes);
  struct BufferBytes {
    uint64_t input = 0, output = 0;  // that programs may touch; 0 where this rank has none
  };
  BufferBytes buffer_bytes() const;
  bool in_place() const;
  void describe_buffers();
  void finish_exchange();

  Communicator::Impl& comm_;
  const Call& call_;
  Communicator::Impl::Plan* plan_ = nullptr;
  uint64_t fingerprint_ = 0;
  uint64_t connecting_ = 0;  // fingerprint by which GPUs are connected, whatever each rank's first call on them
  std::byte* buffers_[3] = {};
  BufferDescriptor mine_;
  std::unique_ptr<CopyPlan> copies_;  // of a collective on GPU memory
  bool exchanging_ = false;
  std::optional<InWindows> in_windows_;
  std::chrono::steady_clock::time_point began_;  // of a call that is reported
  bool trying_ = false;  // the plan's StoreTrial watches this call
  std::optional<Run> run_;
};

}  // namespace muster
