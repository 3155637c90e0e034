// A block keeps any number of flows going: whichever can, moves on by one slot. So no message waits for
// another peer's, in whatever order groups were written down, and with however few blocks.
//
// Warp 0 looks, its lanes at one flow each, and all threads of the block move the data. What orders it is as
// in interpreter.cuh: counters are polled with acquire before the barrier after which data is moved, and
// released after the barrier that follows the moving. `turn_` and flows' states are warp 0's, between
// __syncwarp()s.
#pragma once

#include "exec/cuda/combine.cuh"
#include "exec/cuda/message_plan.h"
#include "exec/cuda/waiting.cuh"

namespace muster::cuda {

class MessageMover {
 public:
  // In shared memory. Messages and flows are copied here, for they may lie in the host's memory.
  struct Shared {
    struct State {
      KernelFlow flow;  // `first`: the message under way
      KernelMessage message;
      uint64_t moved;  // bytes of it
    };
    State flows[kMostFlowsOfBlock];
    Pass pass;
    uint64_t bytes;  // that are moved now
    bool over;
  };

  __device__ MessageMover(const MessageArgs& args, Shared& shared)
      : a_(args),
        shared_(shared),
        report_(&args.report->channels[blockIdx.x]),
        mine_((args.flow_count - blockIdx.x + gridDim.x - 1) / gridDim.x) {}

  __device__ void run() {
    const bool first_warp = threadIdx.x < 32;
    if (first_warp) begin();
    for (;;) {
      uint32_t picked = kNone;
      if (first_warp) {
        picked = pick();
        aim(picked);
      }
      __syncthreads();
      if (shared_.over) return;
      copy(shared_.pass, shared_.bytes);
      __syncthreads();
      if (first_warp) hand_over(picked);
    }
  }

 private:
  static constexpr uint32_t kNone = 0xffffffffu;

  __device__ void begin() {
    for (uint32_t i = threadIdx.x; i < mine_; i += 32) {
      auto& s = shared_.flows[i];
      s.flow = a_.flows[blockIdx.x + i * gridDim.x];
      if (s.flow.first < s.flow.last) s.message = a_.messages[s.flow.first];
      s.moved = 0;
    }
    __syncwarp();
  }

  __device__ bool ready(const KernelFlow& f) const {
    if (f.kind == KernelFlow::copies) return true;
    const KernelEnd& end = a_.ends[f.end];
    return f.kind == KernelFlow::sends ? end.count - load_acquire(end.taken) < a_.slots
                                       : load_acquire(end.posted) > end.count;
  }

  // A flow that can move on; kNone: all are done, or the host ends all kernels.
  __device__ uint32_t pick() {
    for (uint32_t polls = 1, looks = 0;; ++polls) {
      uint32_t late = kNone;
      for (uint32_t base = 0; base < mine_; base += 32) {
        const uint32_t i = (turn_ + base + threadIdx.x) % mine_;
        const bool unfinished =
            base + threadIdx.x < mine_ && shared_.flows[i].flow.first < shared_.flows[i].flow.last;
        const uint32_t movable = __ballot_sync(0xffffffffu, unfinished && ready(shared_.flows[i].flow));
        if (movable != 0) {
          if (looks > kLooksUntilReport && threadIdx.x == 0) store_relaxed(&report_->waits_for, 0);
          turn_ = (turn_ + base + static_cast<uint32_t>(__ffs(static_cast<int>(movable))) - 1) % mine_;
          return turn_++;
        }
        const uint32_t waiting = __ballot_sync(0xffffffffu, unfinished);
        if (waiting != 0 && late == kNone)
          late = (turn_ + base + static_cast<uint32_t>(__ffs(static_cast<int>(waiting))) - 1) % mine_;
      }
      if (late == kNone) return kNone;
      if (polls % kPollsPerLook != 0) continue;
      if (__any_sync(0xffffffffu, load_relaxed(&a_.report->abort) != 0)) return kNone;
      if (looks++ == kLooksUntilReport && threadIdx.x == 0)
        store_relaxed(&report_->waits_for, wait_mark(a_.ends[shared_.flows[late].flow.end]));
    }
  }

  __device__ void aim(uint32_t picked) {
    __syncwarp();  // what another lane acquired is this one's, too
    if (threadIdx.x != 0) return;
    shared_.over = picked == kNone;
    if (picked == kNone) return;
    const auto& s = shared_.flows[picked];
    const KernelMessage& m = s.message;
    Pass& p = shared_.pass;
    const uint64_t left = m.bytes - s.moved;
    shared_.bytes = left < a_.slot_bytes ? left : a_.slot_bytes;
    std::byte* slot = nullptr;
    if (s.flow.kind != KernelFlow::copies) {
      const KernelEnd& end = a_.ends[s.flow.end];
      slot = end.slots + end.count % a_.slots * a_.slot_bytes;
      if (s.flow.kind == KernelFlow::receives)
        if (uint64_t found;
            load_line(header_of(end, a_.slots), flag_of(end.count), found) && found != m.fingerprint) {
          report_->peer = end.peer;
          report_->expected = m.fingerprint;
          report_->found = found;
          store_release(&report_->mismatch, 1);
          shared_.over = true;
        }
    }
    const std::byte* const from = m.from != nullptr ? m.from + s.moved : slot;
    std::byte* const to = m.to != nullptr ? m.to + s.moved : slot;
    p.at[0] = const_cast<std::byte*>(from);
    p.at[1] = to;
    p.sources = p.destinations = 1;
    p.apart =
        static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) ^ reinterpret_cast<uintptr_t>(to)) % kVector;
  }

  // What was moved is published, or its slot given back.
  __device__ void hand_over(uint32_t picked) {
    if (threadIdx.x == 0) {
      auto& s = shared_.flows[picked];
      if (s.flow.kind != KernelFlow::copies) {
        KernelEnd& end = a_.ends[s.flow.end];
        const bool sends = s.flow.kind == KernelFlow::sends;
        const uint64_t count = end.count;
        if (sends) store_line(header_of(end, a_.slots), s.message.fingerprint, flag_of(count));
        if (sends && end.sizes != nullptr) end.sizes[count % a_.slots] = shared_.bytes;
        end.count = count + 1;
        store_release(sends ? end.posted : end.taken, count + 1);
      }
      s.moved += shared_.bytes;
      if (s.moved == s.message.bytes) {
        s.moved = 0;
        if (++s.flow.first < s.flow.last) s.message = a_.messages[s.flow.first];
      }
    }
    __syncwarp();
  }

  const MessageArgs& a_;
  Shared& shared_;
  ChannelReport* const report_;
  const uint32_t mine_;  // flows of this block
  uint32_t turn_ = 0;    // at which of them it looks first
};

}  // namespace muster::cuda
