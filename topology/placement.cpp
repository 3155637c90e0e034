#include "topology/placement.h"

#include <algorithm>

namespace muster::topology {
namespace {

// Part i of n of a list, each as long as the others within one.
std::vector<int> share_of(const std::vector<int>& list, size_t i, size_t n) {
  const auto begin = [&](size_t part) {
    return list.begin() + static_cast<std::ptrdiff_t>(list.size() * part / n);
  };
  return {begin(i), begin(i + 1)};
}

}  // namespace

std::vector<std::vector<int>> place_ranks(std::span<const Numa> numas, const std::vector<int>& allowed,
                                          int ranks) {
  const auto n = static_cast<size_t>(std::max(0, ranks));
  std::vector<std::vector<int>> r(n);
  if (n == 0) return r;
  if (allowed.size() < n) {
    if (allowed.empty() || n % allowed.size() != 0) return r;
    const auto of_core = place_ranks(numas, allowed, static_cast<int>(allowed.size()));
    for (size_t i = 0; i < n; ++i) r[i] = of_core[i % of_core.size()];
    return r;
  }

  std::vector<std::vector<int>> nodes;
  std::vector<int> left = allowed;  // in no node so far
  for (const Numa& numa : numas) {
    std::vector<int> here, rest;
    std::set_intersection(left.begin(), left.end(), numa.cpus.begin(), numa.cpus.end(),
                          std::back_inserter(here));
    if (here.empty()) continue;
    std::set_difference(left.begin(), left.end(), here.begin(), here.end(), std::back_inserter(rest));
    left = std::move(rest);
    nodes.push_back(std::move(here));
  }
  if (!left.empty()) nodes.push_back(std::move(left));

  if (n >= nodes.size()) {
    std::vector<std::vector<size_t>> on(nodes.size());
    for (size_t i = 0; i < n; ++i) on[i * nodes.size() / n].push_back(i);
    bool enough = true;
    for (size_t k = 0; k < nodes.size(); ++k) enough = enough && nodes[k].size() >= on[k].size();
    if (enough) {
      for (size_t k = 0; k < nodes.size(); ++k)
        for (size_t j = 0; j < on[k].size(); ++j) r[on[k][j]] = share_of(nodes[k], j, on[k].size());
      return r;
    }
  }
  // Whole nodes for each rank, or, where nodes are too different for that, neighbours across their borders.
  std::vector<int> all;
  for (const std::vector<int>& node : nodes) all.insert(all.end(), node.begin(), node.end());
  for (size_t i = 0; i < n; ++i) {
    if (n < nodes.size())
      for (size_t k = i * nodes.size() / n; k < (i + 1) * nodes.size() / n; ++k)
        r[i].insert(r[i].end(), nodes[k].begin(), nodes[k].end());
    else
      r[i] = share_of(all, i, n);
    std::sort(r[i].begin(), r[i].end());
  }
  return r;
}

}  // namespace muster::topology
