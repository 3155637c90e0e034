// How a family's hosts come to the network that joins them.
#pragma once

#include "base/deadline.h"
#include "comm/family.h"

namespace muster {

// Collective over all ranks of the family, which are on several hosts: the best network that all of them have. Throws on all
// ranks what went wrong on one.
void join_network(Family& family, const Options& options, Deadline deadline);

}  // namespace muster
