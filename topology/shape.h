// What hosts of one kind have in common.
#pragma once

#include "topology/machine.h"

namespace muster::topology {

// Without what is one host's, or one process's: its name and hash, serial numbers (UUIDs, GUIDs), ranks, what was noticed
// there, and what the process that looked may use of it.
// Hosts of one kind, built and cabled alike, have equal shapes; ports of one card stay under it.
Machine shape_of(Machine m);

}  // namespace muster::topology
