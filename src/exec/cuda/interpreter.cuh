// A block interprets one channel of a program.
//
// Warp 0 waits and posts, its lanes one connection each; then all threads of the block move the step's data.
// What orders it:
//  - a sender's stores of a message come before its barrier, and that before the release store of `posted` by
//    one lane; the receiver's acquire load of it comes before the barrier after which its threads load the
//    message. The same holds for `taken` and the stores to a slot that was read before. Release and acquire
//    are of system scope, so that it holds between devices, and barriers carry it to all threads of a block.
//  - of a message of lines, each line says itself that it is there, so nobody waits for `posted`; for `taken`
//    the above holds.
//  - counts of an end are written by warp 0 only, behind a barrier after which other warps read none until
//    the next one.
//  - what Pass holds is written by warp 0 between two barriers.
// Calls of one launch follow each other in a block as steps do; nothing orders what different blocks do in them
// (fusion.h).
#pragma once

#include "exec/cuda/combine.cuh"
#include "exec/cuda/kernel_plan.h"

namespace muster::cuda {

class Interpreter {
 public:
  __device__ Interpreter(const KernelLaunch& launch, Pass& pass) : launch_(launch), pass_(pass) {}

  // `move(args, pass)`: does a pass that combines. False, of it and of this: the kernel is to end.
  template <class Move>
  __device__ bool run(const Move& move) {
    const KernelChannel channel = args().channels[blockIdx.x];
    for (uint32_t l = channel.first; l < channel.last; ++l) {
      const KernelLoop& loop = args().loops[l];
      for (uint64_t begin = 0; begin < loop.tiles * args().tile; begin += args().tile)
        for (uint32_t s = loop.first; s < loop.last; ++s)
          if (!step(loop, args().steps[s], begin, move)) return false;
    }
    return true;
  }

 private:
  // False: stop.
  template <class Move>
  __device__ bool step(const KernelLoop& loop, const KernelStep& s, uint64_t begin, const Move& move) {
    // Both ends know the length, so a message of none is not sent. Tokens are, and the first tile where the
    // length could be another one at the other side.
    if (s.pieces != 0 && begin >= s.longest && (begin != 0 || !loop.sends_empty)) return true;
    const bool first_warp = threadIdx.x < 32;
    bool stop = false;
    if (first_warp) {
      if (threadIdx.x == 0) {
        pass_.fingerprint = args().fingerprint ^ s.mark;
        pass_.in_message = 0;
      }
      __syncwarp();
      stop = pass_.stopped != 0;
      if (!stop) {
        stop = !await(s);
        if (s.pieces != 0) aim(s, 0, begin);
      }
    }
    if (__syncthreads_or(stop)) return false;
    if (pass_.wipes != 0) wipe(s);
    for (uint32_t j = 0; j < s.pieces; ++j) {
      const uint64_t length = piece(s, j, begin);
      if (j != 0) {
        __syncthreads();
        if (first_warp) aim(s, j, begin);
        __syncthreads();
      }
      if (length != 0 && !stop) {
        if (s.combines)
          stop = !move(args(), pass_);
        else if (s.sources == 1)
          stop = !copy_piece(length * args().element);
      }
    }
    if (__syncthreads_or(stop)) return false;
    if (first_warp) {
      const bool good = hand_over(s);
      if (threadIdx.x == 0) pass_.stopped = good ? 0 : 1;
    }
    return true;
  }

  __device__ uint64_t piece(const KernelStep& s, uint32_t j, uint64_t begin) const {
    const uint64_t length = args().lengths[s.length + j];
    if (length <= begin) return 0;
    return length - begin < args().tile ? length - begin : args().tile;
  }

  // A piece begins with a line of its own.
  __device__ uint64_t bytes_in_slot(uint64_t bytes) const {
    return args().lines != 0 ? (bytes + kLineData - 1) / kLineData * kLineBytes : bytes;
  }

  __device__ bool copy_piece(uint64_t bytes) {
    if (args().lines != 0) return copy_lines(args(), pass_, bytes);
    copy(pass_, bytes);
    return true;
  }

  // Of warp 0: until the step's destinations are free, and its sources full where lines don't say so
  // themselves. Messages get their headers.
  __device__ bool await(const KernelStep& s) {
    bool good = true, wipes_slot = false;
    for (uint32_t u = s.first_use + threadIdx.x; u < s.last_use; u += 32) {
      const KernelUse use = args().uses[u];
      const KernelEnd& end = args().ends[use.end];
      const auto peer = [&]() -> const KernelEnd& { return end; };
      if (use.sends == 0) {
        if (args().lines == 0)
          good &= wait_until(
                      args(), pass_, true, [&] { return load_acquire(end.posted) > end.count; }, peer) &&
                  !is_foreign(args(), pass_, end);
        else if (s.pieces == 0)
          good &= await_header(end);
      } else if (wait_until(
                     args(), pass_, false, [&] { return end.count - load_acquire(end.taken) < args().slots; },
                     peer)) {
        wipes_slot |= wipes(end.count, args().slots);
        if (s.pieces != 0) store_header(end);
      } else {
        good = false;
      }
    }
    wipes_slot = __any_sync(0xffffffffu, wipes_slot);
    if (threadIdx.x == 0) pass_.wipes = wipes_slot ? 1 : 0;
    return good;
  }

  __device__ void store_header(const KernelEnd& end) const {
    store_line(header_of(end, args().slots), pass_.fingerprint, flag_of(end.count));
  }
  // False: the kernel is to end.
  __device__ bool await_header(const KernelEnd& end) {
    uint64_t found;
    return wait_until(
               args(), pass_, true, [&] { return load_line(header_of(end, args().slots), flag_of(end.count), found); },
               [&]() -> const KernelEnd& { return end; }) &&
           !is_foreign(args(), pass_, end);
  }

  // Of all threads: what earlier messages have left in slots whose turn it is (lines.cuh).
  __device__ void wipe(const KernelStep& s) const {
    for (uint32_t u = s.first_use; u < s.last_use; ++u) {
      const KernelUse use = args().uses[u];
      const KernelEnd& end = args().ends[use.end];
      if (use.sends == 0 || !wipes(end.count, args().slots)) continue;
      auto* const lines = reinterpret_cast<Pair*>(end.lines + end.count % args().slots * args().line_bytes);
      for (uint64_t i = threadIdx.x; i < args().line_bytes / kLineBytes; i += blockDim.x)
        store_line(lines + i, 0, 0);
    }
    __syncthreads();
  }

  // Of warp 0: where piece j of the step's places is. Pieces are aimed at in order.
  __device__ void aim(const KernelStep& s, uint32_t j, uint64_t begin) {
    const uint32_t n = s.sources + s.destinations;
    const uint64_t* const offsets = args().offsets + s.offset + uint64_t{j} * n;
    const uint64_t shift = begin * args().element, in_message = pass_.in_message;
    uint32_t low = 0;  // bits of the first place's address
    uint32_t apart = 0;
    for (uint32_t base = 0; base < n; base += 32) {
      const uint32_t i = base + threadIdx.x;
      std::byte* at = nullptr;
      uint32_t flag = 0;
      if (i < n) {
        const KernelPlace place = args().places[s.place + i];
        if (place.kind == KernelPlace::local) {
          at = args().buffers[place.buffer] + offsets[i] + shift;
        } else if (place.kind == KernelPlace::window) {
          at = args().windows[place.buffer][place.at] + offsets[i] + shift;
        } else {
          const KernelEnd& end = args().ends[place.at];
          if (args().lines != 0) {
            at = end.lines + end.count % args().slots * args().line_bytes + in_message;
            flag = flag_of(end.count);
          } else {
            at = end.slots + end.count % args().slots * args().slot_bytes + in_message;
          }
        }
        pass_.at[i] = at;
        pass_.flag[i] = flag;
      }
      const auto bits = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at));
      if (base == 0 && args().lines == 0) low = __shfl_sync(0xffffffffu, bits, 0);
      if (i < n) apart |= (bits ^ low) % kVector;  // lines have whole vectors
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) apart |= __shfl_xor_sync(0xffffffffu, apart, lanes);
    __syncwarp();  // all lanes have read in_message
    if (threadIdx.x == 0) {
      pass_.sources = s.sources;
      pass_.destinations = s.destinations;
      pass_.count = piece(s, j, begin);
      pass_.in_message = in_message + bytes_in_slot(pass_.count * args().element);
      pass_.weighted = s.weighted;
      pass_.weight_bits = weight();
      pass_.divisor = s.finish != 0 ? args().divisor : 0;
      pass_.op = args().op;
      pass_.apart = apart;
      pass_.place = s.place;
    }
  }

  __device__ uint64_t weight() const {
    if (args().weight_at == nullptr) return args().weight_bits;
    switch (args().element) {
      case 1:
        return *static_cast<const uint8_t*>(args().weight_at);
      case 2:
        return *static_cast<const uint16_t*>(args().weight_at);
      case 4:
        return *static_cast<const uint32_t*>(args().weight_at);
      default:
        return *static_cast<const uint64_t*>(args().weight_at);
    }
  }

  // Of warp 0: messages are published, and slots that were read given back. False: the kernel is to end.
  __device__ bool hand_over(const KernelStep& s) {
    bool good = true;
    for (uint32_t u = s.first_use + threadIdx.x; u < s.last_use; u += 32) {
      const KernelUse use = args().uses[u];
      KernelEnd& end = args().ends[use.end];
      if (use.sends != 0 && s.pieces == 0) store_header(end);
      if (use.sends == 0 && args().lines != 0 && s.pieces != 0) good &= await_header(end);
      if (use.sends != 0 && end.sizes != nullptr) end.sizes[end.count % args().slots] = pass_.in_message;
      const uint64_t count = end.count + 1;
      end.count = count;
      if (use.sends == 0)
        store_release(end.taken, count);
      else if (args().lines == 0)
        store_release(end.posted, count);
    }
    __syncwarp();
    return __all_sync(0xffffffffu, good);
  }

  // Of the call that the block is at. Its number is in shared memory, for it would take registers all the time.
  __device__ const KernelArgs& args() const { return launch_.calls[pass_.call]; }

  const KernelLaunch& launch_;
  Pass& pass_;
};

// A block's part of a launch.
template <class Move>
__device__ void run_calls(const KernelLaunch& launch, Pass& pass, const Move& move) {
  if (threadIdx.x == 0) pass.told = pass.stopped = pass.call = 0;
  __syncthreads();
  for (;;) {
    if (blockIdx.x < launch.calls[pass.call].channel_count && !Interpreter(launch, pass).run(move)) return;
    __syncthreads();
    if (threadIdx.x == 0) ++pass.call;
    __syncthreads();
    if (pass.call == launch.count) return;
  }
}

}  // namespace muster::cuda
