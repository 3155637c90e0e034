// How long a call takes on host memory, by the constants that a communicator has: those of its tuning
// profile, else the built-in ones, which are of one machine, and right for others in their order of
// magnitude.
#pragma once

#include "plan/planner.h"

namespace muster {

// Microseconds of one call among many alike (host_price.h, of several hosts hosts_price.h).
double estimate_us(const Algorithm& algorithm, const CallShape& call, const PlanInputs& inputs);
// Of one point-to-point message or one-sided copy.
double estimate_message_us(uint64_t bytes, const PlanInputs& inputs);

}  // namespace muster
