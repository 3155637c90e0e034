// A picture of a topology for Graphviz: a box per NUMA node, links told apart by colour and width.
#pragma once

#include <string>

#include "topology/cluster.h"

namespace muster::topology {

// NVLink (AMD: xGMI) green, C2C violet, PCIe blue, between CPUs red, network orange; the wider the faster. A
// cluster is drawn as its shapes of hosts around the fabric, not host by host.
std::string write_dot(const Cluster& c);

}  // namespace muster::topology
