// NUMA nodes, packages and CPUs of a running machine.
#pragma once

#include <map>
#include <vector>

#include "topology/machine.h"
#include "topology/system_files.h"

namespace muster::topology {

struct CpuSide {
  std::vector<Numa> numas;    // by os_index; at least one from read_cpus
  std::map<int, int> merged;  // os_index of nodes that are part of another: of which
  int packages = 0;           // 0: unknown
  int cpus = 0;               // online
  bool made_up = false;       // the system tells of no NUMA node: the one that is here stands for all
  std::vector<Finding> findings;
};

// By sysfs, /proc/cpuinfo and, of this machine, the affinity mask; of a captured one /proc/self/status.
CpuSide read_cpus(const SystemFiles& system);

}  // namespace muster::topology
