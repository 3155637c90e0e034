// What the GPU part of a rank is told of its communicator.
#pragma once

#include "comm/state.h"

namespace muster {

GpuSetting gpu_setting(Communicator::Impl& comm);

// The rank's GPU part; the first time it is made, on the GPU that is decided. For the thread that is in a call.
GpuRank& require_gpu_rank(Communicator::Impl& comm);

}  // namespace muster
