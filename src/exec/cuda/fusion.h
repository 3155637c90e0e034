// Which calls that follow each other on a stream may be one launch.
#pragma once

#include <span>

#include "exec/cuda/executor.h"

namespace muster::cuda {

// Whether `next` may be in the launch of those before it, which may be in one themselves. Each block runs its channels of
// all calls in order, and nothing orders different blocks. So calls of several channels must have the same lanes for the
// same blocks, and leave each other's memory alone; those of one channel are all one block's, and may do what they like.
// They must have the same kernel, but for those that only move data, for which every kernel serves. Calls with peers'
// windows and those without a kernel stay alone.
bool fits(std::span<const KernelExecutor::BoundCall> launch, const KernelExecutor::BoundCall& next);

}  // namespace muster::cuda
