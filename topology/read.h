// Reading a topology of whatever format, told by what is in it.
#pragma once

#include <string>
#include <string_view>

#include "topology/cluster.h"
#include "topology/file.h"

namespace muster::topology {

enum class Format {
  unknown,
  nccl_xml,    // what NCCL_TOPO_DUMP_FILE writes and NCCL_TOPO_FILE reads
  nccl_graph,  // NCCL_GRAPH_DUMP_FILE: rings and trees, no topology
  hwloc_xml,   // lstopo topology.xml
  smi_matrix,  // nvidia-smi topo -m
  cluster,     // cluster_file.h
  json,        // json.h
};
std::string_view name_of(Format f);

Format recognise(std::string_view text);
// What a text of unknown format seems to be: "an NCCL debug log", "empty".
std::string seems_to_be(std::string_view text);

// `name` is the file's, for messages; `load` gives the files that a cluster's description names. Throws
// invalid_argument for what isn't a topology, with what it seems to be.
Cluster read_topology(
    std::string_view text, const std::string& name,
    const Loader& load = [](const std::string& path) { return load_file(path); });

}  // namespace muster::topology
