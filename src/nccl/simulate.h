// How long a group would take, without running it.
#pragma once

#include <span>

#include "comm/state.h"

namespace muster::nccl {

// Microseconds, by the host cost model (plan/host_price.h): what the planner's choice for each call takes, by the tuning profile
// if there is one, else by the built-in constants of one machine. Messages that a group exchanges are counted one by one.
double estimate_microseconds(std::span<const Batch> streams);

}  // namespace muster::nccl
