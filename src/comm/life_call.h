// Calls that make, end or change a communicator or a window, as they stand in its ledger beside the collectives.
#pragma once

#include <cstdint>

#include "plan/planner.h"

namespace muster {

enum class LifeCall : uint8_t { split = 1, shrink, grow, finalize, suspend, resume, register_window };
const char* name_of(LifeCall call);
constexpr bool makes(LifeCall call) { return call <= LifeCall::grow; }

CallShape shape_of(LifeCall call);
// Null: the shape is a collective's.
const char* life_call_in(const CallShape& shape);

}  // namespace muster
