// Muster's own description of a cluster, for planning what isn't there: JSON with comments (docs/topology.md
// has the keys).
//
//   {"muster_cluster": 1,
//    "hosts": [{"count": 2048, "name": "node", "ready": "dgx-h100"},      // a host by name,
//              {"count": 16, "file": "their-host.xml"},                   // a file of any format,
//              {"count": 2, "host": {"gpus": 4, "gpu": "L40S"}}],         // or said here
//              (host_description.h)
//    "fabric": {"network": "infiniband", "rails": true, "hosts_per_leaf": 32, "gbit_per_s": 400}}
#pragma once

#include <string>
#include <string_view>

#include "topology/cluster.h"
#include "topology/file.h"

namespace muster::topology {

// `load` gives the files that it names, relative to the folder of `name`. Throws invalid_argument with file,
// line and column.
Cluster read_cluster_file(std::string_view text, const std::string& name, const Loader& load);

}  // namespace muster::topology
