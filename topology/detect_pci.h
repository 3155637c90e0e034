// PCI functions of a running machine, as sysfs lists them.
#pragma once

#include <string>
#include <vector>

#include "topology/pci_tree.h"
#include "topology/system_files.h"

namespace muster::topology {

struct SystemFunction {
  PciFunction function;        // numa is not yet set: what the system says of it is below
  std::string folder;          // "/sys/bus/pci/devices/0000:17:00.0"
  std::string numa_text;       // as numa_node has it; empty: there is no such file
  int numa = kNone;            // the system's number of the node; kNone: it says none
  std::vector<int> near_cpus;  // of local_cpulist
  double now_gigatransfers =
      0;  // what the link does now, where that can be less than what it could: idle GPUs slow it down
  int now_lanes = 0, most_lanes = 0;
  bool is_virtual_function = false;
};

// In the order of addresses. Links are given by what they can do at most, lanes as they are.
std::vector<SystemFunction> read_pci_functions(const SystemFiles& system);

}  // namespace muster::topology
