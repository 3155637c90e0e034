// Which GPUs of a cluster reach each other over NVLink (or xGMI) alone: what tensor parallelism should stay in.
#pragma once

#include <span>
#include <vector>

#include "topology/cluster.h"

namespace muster {

// For each GPU, host by host in the order of the machine: a number, equal for GPUs of one domain. Pure; O(GPUs) and the
// paths of each distinct host. A GPU without NVLink is a domain of its own.
std::vector<int> nvlink_domains(const topology::Cluster& cluster);

// The same for ranks: of a host with as many GPUs as ranks the i-th rank is taken to use the i-th GPU; ranks of other hosts
// are in the domain that is their host. `host_of`, by rank: its number in the cluster.
std::vector<int> nvlink_domains_of_ranks(const topology::Cluster& cluster, std::span<const int> host_of);

}  // namespace muster
