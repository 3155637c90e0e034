// Where the GPUs of a communicator's ranks are on the topology that all ranks agreed on, and what joins them, for
// prices.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/links.h"
#include "topology/cluster.h"

namespace muster {

// By rank; empty where the cluster doesn't know all of them. `host_of`: numbers of its hosts, by rank; `buses`: of
// the ranks' GPUs, by rank. Ranks may share one.
std::vector<RankPlace> gpu_places(const topology::Cluster& cluster, std::span<const int> host_of,
                                  std::span<const std::string> buses);

// Of ranks of one host. Where the cluster doesn't know all of their GPUs, or nothing joins them, they count as far
// from each other. What GPUs themselves can't exceed isn't in it, nor Links::sm.
Links links_between(const topology::Cluster& cluster, std::span<const int> host_of,
                    std::span<const std::string> buses);

// As far as GPUs of a host can be: by way of its CPUs, whose links nobody knows.
Links far_links(int ranks);

}  // namespace muster
