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
#pragma once

#include "exec/cuda/combine.cuh"
#include "exec/cuda/kernel_plan.h"

namespace muster::cuda {

class Interpreter {
 public:
  __device__ Interpreter(const KernelArgs& args, Pass& pass) : a_(args), pass_(pass) {}

  // `move(pass)`: does a pass that combines. False: the kernel is to end.
  template <class Move>
  __device__ void run(const Move& move) {
    if (threadIdx.x == 0) pass_.told = 0;
    const KernelChannel channel = a_.channels[blockIdx.x];
    for (uint32_t l = channel.first; l < channel.last; ++l) {
      const KernelLoop& loop = a_.loops[l];
      for (uint64_t tile = 0; tile < loop.tiles; ++tile)
        for (uint32_t s = loop.first; s < loop.last; ++s)
          if (!step(loop, a_.steps[s], tile * a_.tile, move)) return;
    }
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
    uint64_t in_message = 0;  // bytes of the slot before this piece
    if (first_warp) {
      if (threadIdx.x == 0) pass_.fingerprint = a_.fingerprint ^ s.mark;
      __syncwarp();
      stop = stopped_;
      if (!stop) {
        stop = !await(s);
        if (s.pieces != 0) aim(s, 0, begin, in_message);
      }
    }
    if (__syncthreads_or(stop)) return false;
    if (pass_.wipes != 0) wipe(s);
    for (uint32_t j = 0; j < s.pieces; ++j) {
      const uint64_t length = piece(s, j, begin);
      if (j != 0) {
        __syncthreads();
        if (first_warp) aim(s, j, begin, in_message);
        __syncthreads();
      }
      if (length != 0 && !stop) {
        if (s.combines)
          stop = !move(pass_);
        else if (s.sources == 1)
          stop = !copy_piece(length * a_.element);
      }
      in_message += bytes_in_slot(length * a_.element);
    }
    if (__syncthreads_or(stop)) return false;
    if (first_warp) stopped_ = !hand_over(s, in_message);
    return true;
  }

  __device__ uint64_t piece(const KernelStep& s, uint32_t j, uint64_t begin) const {
    const uint64_t length = a_.lengths[s.length + j];
    if (length <= begin) return 0;
    return length - begin < a_.tile ? length - begin : a_.tile;
  }

  // A piece begins with a line of its own.
  __device__ uint64_t bytes_in_slot(uint64_t bytes) const {
    return a_.lines != 0 ? (bytes + kLineData - 1) / kLineData * kLineBytes : bytes;
  }

  __device__ bool copy_piece(uint64_t bytes) {
    if (a_.lines != 0) return copy_lines(a_, pass_, bytes);
    copy(pass_, bytes);
    return true;
  }

  // Of warp 0: until the step's destinations are free, and its sources full where lines don't say so
  // themselves. Messages get their headers.
  __device__ bool await(const KernelStep& s) {
    bool good = true, wipes_slot = false;
    for (uint32_t u = s.first_use + threadIdx.x; u < s.last_use; u += 32) {
      const KernelUse use = a_.uses[u];
      const KernelEnd& end = a_.ends[use.end];
      const auto peer = [&]() -> const KernelEnd& { return end; };
      if (use.sends == 0) {
        if (a_.lines == 0)
          good &= wait_until(
                      a_, pass_, true, [&] { return load_acquire(end.posted) > end.count; }, peer) &&
                  !is_foreign(a_, pass_, end);
        else if (s.pieces == 0)
          good &= await_header(end);
      } else if (wait_until(
                     a_, pass_, false, [&] { return end.count - load_acquire(end.taken) < a_.slots; },
                     peer)) {
        wipes_slot |= wipes(end.count, a_.slots);
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
    store_line(header_of(end, a_.slots), pass_.fingerprint, flag_of(end.count));
  }
  // False: the kernel is to end.
  __device__ bool await_header(const KernelEnd& end) {
    uint64_t found;
    return wait_until(
               a_, pass_, true, [&] { return load_line(header_of(end, a_.slots), flag_of(end.count), found); },
               [&]() -> const KernelEnd& { return end; }) &&
           !is_foreign(a_, pass_, end);
  }

  // Of all threads: what earlier messages have left in slots whose turn it is (lines.cuh).
  __device__ void wipe(const KernelStep& s) const {
    for (uint32_t u = s.first_use; u < s.last_use; ++u) {
      const KernelUse use = a_.uses[u];
      const KernelEnd& end = a_.ends[use.end];
      if (use.sends == 0 || !wipes(end.count, a_.slots)) continue;
      auto* const lines = reinterpret_cast<Pair*>(end.lines + end.count % a_.slots * a_.line_bytes);
      for (uint64_t i = threadIdx.x; i < a_.line_bytes / kLineBytes; i += blockDim.x)
        store_line(lines + i, 0, 0);
    }
    __syncthreads();
  }

  // Of warp 0: where piece j of the step's places is.
  __device__ void aim(const KernelStep& s, uint32_t j, uint64_t begin, uint64_t in_message) {
    const uint32_t n = s.sources + s.destinations;
    const uint64_t* const offsets = a_.offsets + s.offset + uint64_t{j} * n;
    const uint64_t shift = begin * a_.element;
    uint32_t low = 0;  // bits of the first place's address
    uint32_t apart = 0;
    for (uint32_t base = 0; base < n; base += 32) {
      const uint32_t i = base + threadIdx.x;
      std::byte* at = nullptr;
      uint32_t flag = 0;
      if (i < n) {
        const KernelPlace place = a_.places[s.place + i];
        if (place.kind == KernelPlace::local) {
          at = a_.buffers[place.buffer] + offsets[i] + shift;
        } else if (place.kind == KernelPlace::window) {
          at = a_.windows[place.buffer][place.at] + offsets[i] + shift;
        } else {
          const KernelEnd& end = a_.ends[place.at];
          if (a_.lines != 0) {
            at = end.lines + end.count % a_.slots * a_.line_bytes + in_message;
            flag = flag_of(end.count);
          } else {
            at = end.slots + end.count % a_.slots * a_.slot_bytes + in_message;
          }
        }
        pass_.at[i] = at;
        pass_.flag[i] = flag;
      }
      const auto bits = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at));
      if (base == 0 && a_.lines == 0) low = __shfl_sync(0xffffffffu, bits, 0);
      if (i < n) apart |= (bits ^ low) % kVector;  // lines have whole vectors
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) apart |= __shfl_xor_sync(0xffffffffu, apart, lanes);
    if (threadIdx.x == 0) {
      pass_.sources = s.sources;
      pass_.destinations = s.destinations;
      pass_.count = piece(s, j, begin);
      pass_.weighted = s.weighted;
      pass_.weight_bits = weight();
      pass_.divisor = s.finish != 0 ? a_.divisor : 0;
      pass_.op = a_.op;
      pass_.apart = apart;
      pass_.place = s.place;
    }
  }

  __device__ uint64_t weight() const {
    if (a_.weight_at == nullptr) return a_.weight_bits;
    switch (a_.element) {
      case 1:
        return *static_cast<const uint8_t*>(a_.weight_at);
      case 2:
        return *static_cast<const uint16_t*>(a_.weight_at);
      case 4:
        return *static_cast<const uint32_t*>(a_.weight_at);
      default:
        return *static_cast<const uint64_t*>(a_.weight_at);
    }
  }

  // Of warp 0: messages, of so many bytes, are published, and slots that were read given back. False: the
  // kernel is to end.
  __device__ bool hand_over(const KernelStep& s, uint64_t bytes) {
    bool good = true;
    for (uint32_t u = s.first_use + threadIdx.x; u < s.last_use; u += 32) {
      const KernelUse use = a_.uses[u];
      KernelEnd& end = a_.ends[use.end];
      if (use.sends != 0 && s.pieces == 0) store_header(end);
      if (use.sends == 0 && a_.lines != 0 && s.pieces != 0) good &= await_header(end);
      if (use.sends != 0 && end.sizes != nullptr) end.sizes[end.count % a_.slots] = bytes;
      const uint64_t count = end.count + 1;
      end.count = count;
      if (use.sends == 0)
        store_release(end.taken, count);
      else if (a_.lines == 0)
        store_release(end.posted, count);
    }
    __syncwarp();
    return __all_sync(0xffffffffu, good);
  }

  const KernelArgs& a_;
  Pass& pass_;
  bool stopped_ = false;  // of warp 0, the same in all its lanes
};

}  // namespace muster::cuda
