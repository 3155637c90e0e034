// Protocol LL: a message of lines, each of which says itself that it is there.
//
// A line is 16 bytes, two words of 8, and a word is 4 bytes of data and the message's flag. Words are stored
// and loaded whole, so data with the right flag is the message's: nobody waits for a counter, and nothing
// needs to be fenced. The price is half of the bandwidth.
#pragma once

#include "exec/cuda/kernel_plan.h"
#include "exec/cuda/line_flag.h"
#include "exec/cuda/ordered.cuh"

namespace muster::cuda {

// Flags come again after 2^32 - 1 messages, and a short message leaves most of its slot as it was. So the
// last messages of each 2^31, one per slot, wipe their slots first.
__device__ inline bool wipes(uint64_t count, uint32_t slots) {
  constexpr uint32_t kPeriod = 1u << 31;
  return static_cast<uint32_t>(count) % kPeriod >= kPeriod - slots;
}

__device__ inline void store_line(Pair* line, uint64_t data, uint32_t flag) {
  const uint64_t high = uint64_t{flag} << 32;
  store_pair(line, {(data & 0xffffffffu) | high, data >> 32 | high});
}
// Whether the line is there.
__device__ inline bool load_line(const Pair* line, uint32_t flag, uint64_t& data) {
  const Pair v = load_pair(line);
  data = (v.a & 0xffffffffu) | v.b << 32;
  return v.a >> 32 == flag && v.b >> 32 == flag;
}

}  // namespace muster::cuda
