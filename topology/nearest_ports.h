// Which network port a GPU should use, and whether the card reaches its memory itself.
#pragma once

#include <string>
#include <vector>

#include "topology/paths.h"

namespace muster::topology {

struct PortRules {
  bool pxn = true;  // also by way of another GPU (NCCL_PXN_DISABLE=0)
  // The farthest class over which a card may read and write a GPU's memory (NCCL_NET_GDR_LEVEL).
  PathClass gpudirect = PathClass::p2c;
};

struct PortChoice {
  int port = kNone;
  Path path;                                // from the GPU; by way of another one where that is closer (PXN)
  Answer3 gpudirect = Answer3::unknown;
  std::string why;                          // of gpudirect, for a person
};

// For each GPU of all(Kind::gpu) all ports, from best to worst: by class, then rate. GPUs to which several are equally
// good take them in turn. O(GPUs^2 * ports).
std::vector<std::vector<PortChoice>> nearest_ports(const Machine& m, PortRules rules = {});

}  // namespace muster::topology
