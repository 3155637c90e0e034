// One graph of all hosts, equal on all ranks, made while they meet of what each host's first rank knows of its machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "bootstrap/bootstrap.h"
#include "topology/cluster.h"

namespace muster {

struct AgreedCluster {
  std::shared_ptr<const topology::Cluster> cluster;  // hosts in the order of their first ranks; shapes without serial numbers
  std::vector<int> host_of;                          // by rank: the host's number in the cluster
  uint64_t hash = 0;                                 // of all of it; equal on all ranks
};

// Collective. `identities`, by rank, are equal on ranks of one host. `machine` is asked on the first rank of each host
// alone, and what it throws comes out there. Hosts of one shape are sent and kept once: memory goes with the number of
// distinct shapes (and 4 bytes per rank).
AgreedCluster agree_on_cluster(Bootstrap& bootstrap, const std::vector<std::string>& identities,
                               const std::vector<std::string>& names, const std::function<topology::Machine()>& machine,
                               Deadline deadline);

// "2 hosts of 1 kind, 16 GPUs, 16 network ports, hash 1f..."
std::string summary(const AgreedCluster& c);

}  // namespace muster
