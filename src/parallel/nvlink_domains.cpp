#include "parallel/nvlink_domains.h"

#include <algorithm>
#include <map>

#include "topology/paths.h"

namespace muster {
namespace {

// For each GPU the first one that it reaches by NVLink, which is itself if no earlier one is.
std::vector<int> first_within_reach(const topology::Machine& m) {
  const std::vector<int> gpus = m.all(topology::Kind::gpu);
  std::vector<int> first(gpus.size());
  for (size_t i = 0; i < gpus.size(); ++i) {
    const std::vector<topology::Path> paths = topology::paths_from(m, gpus[i]);
    size_t j = 0;
    while (j < i && paths[static_cast<size_t>(gpus[j])].path_class > topology::PathClass::nvb) ++j;
    first[i] = j < i ? first[j] : static_cast<int>(i);
  }
  return first;
}

}  // namespace

std::vector<int> nvlink_domains(const topology::Cluster& cluster) {
  std::map<int, std::vector<int>> by_shape;
  std::vector<int> domains;
  const int joined_hosts = std::max(cluster.fabric.hosts_per_nvlink_domain, 1);
  int host = 0, next = 0;
  std::map<std::pair<int, int>, int> numbers;  // of what is joined: the first host and its GPU
  for (const topology::HostGroup& group : cluster.hosts) {
    auto& first = by_shape[group.shape];
    if (first.empty()) first = first_within_reach(*cluster.shapes[static_cast<size_t>(group.shape)]);
    for (int i = 0; i < group.count; ++i, ++host)
      for (const int gpu : first) {
        const std::pair<int, int> key = joined_hosts > 1 ? std::pair{host / joined_hosts, 0} : std::pair{host, gpu};
        const auto [at, is_new] = numbers.emplace(key, next);
        next += is_new;
        domains.push_back(at->second);
      }
  }
  return domains;
}

std::vector<int> nvlink_domains_of_ranks(const topology::Cluster& cluster, std::span<const int> host_of) {
  const std::vector<int> of_gpus = nvlink_domains(cluster);
  std::vector<size_t> first_gpu = {0};  // by host, and where the last one's end
  for (const topology::HostGroup& group : cluster.hosts) {
    const size_t gpus = cluster.shapes[static_cast<size_t>(group.shape)]->all(topology::Kind::gpu).size();
    for (int i = 0; i < group.count; ++i) first_gpu.push_back(first_gpu.back() + gpus);
  }
  std::map<int, size_t> ranks, seen;  // by host
  for (const int h : host_of) ++ranks[h];
  std::vector<int> domains;
  for (const int h : host_of) {
    const size_t first = first_gpu[static_cast<size_t>(h)], gpus = first_gpu[static_cast<size_t>(h) + 1] - first;
    domains.push_back(gpus == ranks[h] ? of_gpus[first + seen[h]++] : static_cast<int>(of_gpus.size()) + h);
  }
  return domains;
}

}  // namespace muster
