// The findings of `muster topo --check` that bear on how fast a collective is.
#pragma once

#include <string>
#include <vector>

#include "topology/cluster.h"
#include "topology/finding.h"

namespace muster::tool {

// The gravest first. `hosts`: of the plan; on one host ports don't matter.
std::vector<topology::Finding> speed_findings(const topology::Cluster& cluster, int hosts);

// A line per kind of finding, "note       ...", and how many more there are; `file` is what muster topo is to
// be told, "" for this machine.
std::string findings_text(const std::vector<topology::Finding>& findings, const std::string& file);

}  // namespace muster::tool
