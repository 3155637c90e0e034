// What a person should know of a machine that nobody has told yet: slow ways, shared ports, what doesn't fit
// together. Readers and detectors leave their own findings in the model; these follow from the model alone.
#pragma once

#include <vector>

#include "topology/cluster.h"
#include "topology/finding.h"

namespace muster::topology {

std::vector<Finding> examine(const Machine& m);
// Of the hosts together; those of each shape are examine(machine)'s.
std::vector<Finding> examine(const Cluster& c);

// All that is known: what readers found, then what follows from the model; the gravest first, none twice.
std::vector<Finding> all_findings(const Machine& m);
std::vector<Finding> all_findings(const Cluster& c);

}  // namespace muster::topology
