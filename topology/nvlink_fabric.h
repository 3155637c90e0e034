// The links between GPUs, as matrices and drivers tell them, made into links of a machine.
#pragma once

#include "topology/machine.h"

namespace muster::topology {

// `count` NVLinks between two GPUs, or a GPU and a NUMA node (POWER8 and 9), at the rate that rates.h has for
// the GPUs' chip. Adds to a link that is there.
void add_nvlinks(Machine& m, int gpu, int other, int count);
// `count` NVLinks of a GPU to the NVSwitches. The node of all NVSwitches is made where there is none.
void add_nvswitch_links(Machine& m, int gpu, int count);
// That there are at least `count` NVSwitches.
void set_nvswitches(Machine& m, int count);
// The same between AMD GPUs. `counted`: whether the number of links is known, or only that there are some.
// `sharers`: pairs of GPUs that use these links together, each of which gets its part of the rate.
void add_xgmi_links(Machine& m, int gpu, int other, int count, bool counted, int sharers = 1);

// For what nobody told of a machine's NVLinks: with NVSwitches all ports of a GPU are assumed to lead there;
// without, GPUs that could have NVLinks are a finding. Machines with any NVLink are left alone. `told_by`:
// "hwloc XML", for the text.
void assume_nvlinks(Machine& m, std::string_view told_by);

}  // namespace muster::topology
