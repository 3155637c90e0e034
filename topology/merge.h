// A file and what was seen, put together: files describe virtual machines whose PCI tree says nothing, and rarely say all.
#pragma once

#include <string>

#include "topology/machine.h"

namespace muster::topology {

// `file` says where devices are; `seen` adds what the file leaves open about them (names, speeds, NVLinks, GPUDirect), and
// devices that the file doesn't know, at their NUMA node. Devices are told apart by PCI address, NUMA nodes by the system's
// number. Findings say what came from where, and which devices of the file aren't there. `name` is the file's, for them.
Machine merge(Machine file, const Machine& seen, const std::string& name);

}  // namespace muster::topology
