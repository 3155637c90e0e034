// hwloc beside sysfs: a second opinion on CPUs and PCI functions.
#pragma once

#include <vector>

#include "topology/hwloc_view.h"

namespace muster::topology {

// What only hwloc knows is taken from it; where the two differ a finding says so, and sysfs stays.
void add_hwloc_cpus(CpuSide& cpus, const CpuSide& hwloc, std::vector<Finding>& findings);

// The same of PCI functions: those that sysfs doesn't show, bridges above the others, speeds of links and
// NUMA nodes. `functions` is and remains in the order of addresses; an empty `hwloc` is no opinion.
void add_hwloc_functions(std::vector<SystemFunction>& functions, const std::vector<SystemFunction>& hwloc,
                         std::vector<Finding>& findings);

}  // namespace muster::topology
