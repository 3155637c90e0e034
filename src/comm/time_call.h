// How long one collective takes here, over and over on the same buffers: what prices are of, and compared
// with.
#pragma once

#include <chrono>

#include "comm/state.h"

namespace muster {

// Collective among `all`; `group`, made of it, makes the calls, and may be empty on ranks that only wait.
// Microseconds per call: the median of five batches, each as long as its slowest rank takes; about `wanted`
// in all, and at least seven calls. Equal on all ranks. `windows`: buffers that the ranks' processes can
// reach directly. Calls are out of place, the root is 0.
double time_call(Communicator& all, Communicator& group, const CallShape& shape, bool windows,
                 std::chrono::duration<double> wanted);

}  // namespace muster
