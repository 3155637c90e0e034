// What the GPU part of a rank is told of its communicator.
#pragma once

#include "comm/state.h"

namespace muster {

GpuSetting gpu_setting(Communicator::Impl& comm);

}  // namespace muster
