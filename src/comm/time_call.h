// How long one collective takes here, over and over on the same buffers: what prices are of, and compared
// with.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "comm/state.h"

namespace muster {

// Collective among `all`; `group`, made of it, makes the calls, and may be empty on ranks that only wait.
// Microseconds per call: the median of five batches, each as long as its slowest rank takes; about `wanted`
// in all, and at least seven calls. Equal on all ranks. `windows`: buffers that the ranks' processes can
// reach directly. Calls are out of place, the root is 0.
double time_call(Communicator& all, Communicator& group, const CallShape& shape, bool windows,
                 std::chrono::duration<double> wanted);

struct TimedCall {
  CallShape shape;
  bool windows = false;
};
// Collective among `all`, who make the calls. Microseconds per call, by call and round. In each round each
// call has a batch of about `per_batch`, or of one call, so that all of them see alike what else goes on on
// the machine. They have one collective, type and count, and share their buffers: one pair of ordinary
// memory, one of windows.
std::vector<std::vector<double>> time_calls(Communicator& all, std::span<const TimedCall> calls,
                                            std::chrono::duration<double> per_batch, int rounds);

double median(std::vector<double> values);

}  // namespace muster
