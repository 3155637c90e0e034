// The model as JSON, complete: what is written and read again is the same. Schema "muster_topology" 1
// (docs/topology.md): what is unknown is left out; rates are in GB/s with their source, latencies in
// microseconds.
#pragma once

#include <string>
#include <string_view>

#include "topology/cluster.h"

namespace muster::topology {

constexpr int kJsonSchema = 1;

std::string write_json(const Cluster& c);
// Throws invalid_argument with file, line and column for what isn't such a file, or not of this schema.
Cluster read_json(std::string_view text, const std::string& name);

}  // namespace muster::topology
