// A machine as a person reads it: what hangs under what, how fast, and where the numbers came from.
#pragma once

#include <string>
#include <vector>

#include "topology/cluster.h"
#include "topology/paths.h"

namespace muster::topology {

struct TextStyle {
  bool colour = false;   // escape sequences of terminals
  bool unicode = false;  // lines of boxes; else ASCII
};

// Machine and links; rates that are assumed end in "?".
std::string tree(const Machine& m, TextStyle style = {});
// Groups of hosts and the fabric, each shape's tree, and how hosts reach each other.
std::string tree(const Cluster& c, TextStyle style = {});
// "0-3,8": of ascending numbers.
std::string ranges(const std::vector<int>& numbers);
// Hop by hop from the first device to the last, the narrowest link marked.
std::string hops(const Machine& m, const Path& p, TextStyle style = {});
// For each GPU the ports nearest to it, class, rate and whether GPUDirect is possible, and why.
std::string nearest_table(const Machine& m, TextStyle style = {});
std::string list(const std::vector<Finding>& findings, TextStyle style = {});

}  // namespace muster::topology
