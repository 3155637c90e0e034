// What hwloc, linked with where there is its library, finds on the running machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/detect_cpus.h"
#include "topology/detect_pci.h"

namespace muster::topology {

struct HwlocView {
  CpuSide cpus;  // without findings, vendors and `allowed`
  // Of those at a root `numa` is the system's number of the node. Empty: hwloc looked at none.
  std::vector<SystemFunction> functions;
};

// CPUs that this process may not use are included. `xml_file`: a file of hwloc's that stands for this
// machine, as HWLOC_XMLFILE has it; empty: hwloc looks. Nothing where Muster was built without hwloc, or it
// fails.
std::optional<HwlocView> look_by_hwloc(const std::string& xml_file = {});

}  // namespace muster::topology
