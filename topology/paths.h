// How two devices of a machine reach each other: the class that users know the path by, and what it carries.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "topology/machine.h"

namespace muster::topology {

// The classes that nvidia-smi and NCCL print, the closest first.
enum class PathClass : uint8_t {
  loc,   // itself
  nvl,   // NVLink or xGMI, directly or by NVSwitch
  nvb,   // NVLink by way of one other GPU
  c2c,   // a GPU and its CPU on one module
  pix,   // one PCI switch
  pxb,   // several PCI switches
  p2c,   // GPU to its CPU by C2C, and from there by PCI to a NIC
  pxn,   // NVLink to another GPU, and from there to a NIC that is near to it
  phb,   // through the CPU's PCI host bridge
  node,  // between host bridges of one NUMA node
  sys,   // between NUMA nodes
  net,   // between hosts
  dis,   // not at all
};
std::string_view name_of(PathClass c);        // "PIX"
std::string_view explanation_of(PathClass c);
std::optional<PathClass> parse_path_class(std::string_view name);  // also "SOC", the old name of SYS

// What a planner needs to know of a class.
enum class LinkClass : uint8_t { local, nvlink, pcie, cpu_interconnect, infiniband, roce, ethernet, none };
std::string_view name_of(LinkClass c);
LinkClass plain(PathClass c, Network n = Network::unknown);

struct Path {
  PathClass path_class = PathClass::dis;
  Rate rate;                // of its narrowest link
  double latency_us = 0;    // sum over its links
  std::vector<int> nodes;   // from the first to the last
  std::vector<int> links;   // between them: one less
  int narrowest = kNone;    // of `links` (index of the link in the machine)
};

// The paths from one node to all others: among those of the closest class, the widest, and of these the shortest. A GPU
// is passed through only between two NVLinks, once; a NIC and a port not at all. O(links log nodes).
std::vector<Path> paths_from(const Machine& m, int from);

// Class, then rate, then number of links.
bool closer(const Path& a, const Path& b);

// How many NVLinks a GPU has, and what they carry together.
struct NvlinkTotal {
  int links = 0;
  Rate rate;
};
NvlinkTotal nvlinks_of(const Machine& m, int gpu);

}  // namespace muster::topology
