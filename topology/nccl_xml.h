// NCCL's topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE), RCCL's dialect of them, and the files that
// clouds give to virtual machines.
//
// Source of what the elements mean: NCCL 2.18 to 2.30 and RCCL (graph/xml.cc, topo.cc), as facts. NCCL fills
// in from the running system what a file leaves out; a file that is read by itself has only what it says, so
// what is missing is assumed and told as a Finding.
#pragma once

#include <string>
#include <string_view>

#include "topology/cluster.h"

namespace muster::topology {

// What NCCL's own reader takes; it refuses the first three and ignores attributes beyond the fourth. Some
// versions take only 128 elements in one.
struct NcclXmlLimits {
  static constexpr int elements = 256, children = 640, text = 253, attributes = 16;
};

// `name` is the file's, for messages. A file may hold several hosts, told apart by host_hash: each is a shape
// and a host of the cluster. Throws invalid_argument with file, line and column for what is no such file.
Cluster read_nccl_xml(std::string_view text, const std::string& name);

// A file that NCCL accepts, and that reads back with the same meaning (compare.h). What the format can't say
// is left out: host bridges, packages, memory, GPU models and UUIDs, which of several NVSwitches a link leads
// to, and an affinity of more than 896 CPUs. Throws invalid_argument if the machine is beyond NcclXmlLimits.
std::string write_nccl_xml(const Machine& m);

}  // namespace muster::topology
