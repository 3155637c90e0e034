// What this host is made of: as the system says, put together with the file that NCCL_TOPO_FILE names.
#pragma once

#include "base/options.h"
#include "topology/machine.h"

namespace muster {

// The system is looked at once per process. A file that isn't there is a warning; throws invalid_argument or system_error
// for one that can't be read or describes several hosts. Any thread.
topology::Machine host_topology(const Options& options);

// Writes it as NCCL's XML to the file that NCCL_TOPO_DUMP_FILE names, on the rank of NCCL_TOPO_DUMP_FILE_RANK. A file that
// can't be written is a warning.
void dump_topology(const Options& options, int rank);

}  // namespace muster
