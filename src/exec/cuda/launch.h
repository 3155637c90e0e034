// Starting the kernels.
#pragma once

#include <cstdint>

#include "device/cuda/runtime.h"
#include "exec/cuda/kernel_plan.h"
#include "exec/cuda/message_plan.h"
#include "muster/types.h"

namespace muster::cuda {

// The kernel that combines elements so, which moves elements of any type, too. Throws invalid_argument for what is no
// type or operation and for bitwise operations on floats.
const void* reducing_kernel(DataType type, RedOp op);
// That of calls which only move elements.
const void* moving_kernel();

// What a logical operation takes for true: bits that aren't zero; and what it stores for it. 0 of other operations.
struct Truth {
  uint64_t magnitude = 0, one = 0;
};
Truth truth_of(DataType type, RedOp op);

// Starts calls on a stream of the current device, a block per channel; `threads` of each block: a multiple of 32 up
// to kMostKernelThreads. All blocks must fit the device at once together with those they exchange messages with.
void launch(const void* kernel, const KernelLaunch& calls, uint32_t blocks, uint32_t threads, StreamHandle stream);

// The same for a group of sends and receives.
void launch(const MessageArgs& args, uint32_t blocks, uint32_t threads, StreamHandle stream);

}  // namespace muster::cuda
