// Starting the kernels.
#pragma once

#include <cstdint>

#include "device/cuda/runtime.h"
#include "exec/cuda/kernel_plan.h"
#include "exec/cuda/message_plan.h"
#include "muster/types.h"

namespace muster::cuda {

// Starts the plan's channels on a stream of the current device; `threads` of each block: a multiple of 32 up
// to kMostKernelThreads. All blocks must fit the device at once together with those they exchange messages
// with. `reducing`: elements are combined, as args.op says; else they are only moved. Throws invalid_argument
// for what is no type or operation and for bitwise operations on floats.
void launch(const KernelArgs& args, uint32_t channels, uint32_t threads, DataType type, bool reducing,
            StreamHandle stream);

// The same for a group of sends and receives.
void launch(const MessageArgs& args, uint32_t blocks, uint32_t threads, StreamHandle stream);

}  // namespace muster::cuda
