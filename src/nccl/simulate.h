// How long a group would take, without running it.
#pragma once

#include <span>

#include "comm/state.h"

namespace muster::nccl {

// Microseconds, from the machine's hand-over of a cache line and its speed of copying, as they were measured
// once and not here: the order of magnitude is right, and what is twice as much work takes twice as long.
double estimate_microseconds(std::span<const Batch> streams);

}  // namespace muster::nccl
