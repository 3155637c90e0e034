// What a block does now.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/cuda/kernel_plan.h"

namespace muster::cuda {

inline constexpr uint32_t kVector = 16;  // bytes of the widest access

// In shared memory. k sources are combined into d destinations.
struct Pass {
  void* at[2 * kMostKernelPlaces];       // sources, then destinations
  uint32_t flag[2 * kMostKernelPlaces];  // not 0: lines of a message with this flag are there
  uint32_t sources, destinations;
  uint64_t count;     // elements
  uint64_t weighted;  // bit j: source j is multiplied by the weight
  uint64_t weight_bits;
  uint32_t divisor;  // 0: none
  uint32_t op;       // RedOp
  // Bitwise or of how the addresses' low bits differ from the first one's; of messages of lines, of the low
  // bits of all addresses of plain memory.
  uint32_t apart;
  uint32_t place;        // index of the first source's KernelPlace
  uint64_t fingerprint;  // that messages must have
  uint64_t in_message;   // bytes of the step's message before its next piece; of warp 0
  uint32_t wipes;        // 1: a slot's lines are wiped before the step
  uint32_t call;         // of the launch, under way
  uint32_t stopped;      // 1: the kernel is to end; of warp 0, and of all threads between calls
  uint32_t told;         // 1: the host has been told of a message of another call
};

}  // namespace muster::cuda
