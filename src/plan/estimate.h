// How long a call takes on host memory, roughly.
#pragma once

#include "plan/planner.h"

namespace muster {

// Microseconds of one call, from what the algorithm makes the ranks do (work.h) and three numbers measured once and not here, on
// a 2-core EPYC of 2.6 GHz (docs/architecture.md): a call, a cache line handed from one core to another, bytes per direction
// through shared memory. Ranks that share a core take turns. The order of magnitude is right, and what is twice as much work takes
// twice as long.
double estimate_us(const Algorithm& algorithm, const CallShape& call, const PlanInputs& inputs);
// Of one point-to-point message or one-sided copy.
double estimate_message_us(uint64_t bytes, const PlanInputs& inputs);

}  // namespace muster
