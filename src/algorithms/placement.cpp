#include "algorithms/placement.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"

namespace muster {

Placement placement_of(std::span<const int> hosts) {
  Placement p;
  std::map<int, int> number;
  for (const int h : hosts) p.host_of.push_back(number.try_emplace(h, static_cast<int>(number.size())).first->second);
  return p;
}

std::vector<int> host_by_host(std::span<const int> host_of) {
  std::vector<int> order(host_of.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return host_of[static_cast<size_t>(a)] < host_of[static_cast<size_t>(b)]; });
  return order;
}

std::string obstacle(int hosts, int most) {
  if (hosts < 2) return "needs two hosts or more, and all ranks are on one";
  if (most < 2) return fmt::format("needs a host of several ranks, and each of {} has one", hosts);
  return {};
}

std::string obstacle(const Placement& placement) {
  std::map<int, int> ranks;  // by host
  int most = 0;
  for (const int h : placement.host_of) most = std::max(most, ++ranks[h]);
  return obstacle(static_cast<int>(ranks.size()), most);
}

Hosts::Hosts(const Placement* placement, int nranks, int rank) {
  if (placement && placement->host_of.size() != static_cast<size_t>(nranks))
    fail(Result::internal_error, "a placement of {} ranks for a program of {}", placement->host_of.size(), nranks);
  for (int r = 0; r < nranks; ++r) {
    const int h = placement ? placement->host_of[static_cast<size_t>(r)] : 0;
    if (h < 0 || h > count()) fail(Result::internal_error, "a placement has rank {} on host {} where there were {} before", r, h, count());
    if (h == count()) ranks.emplace_back();
    auto& there = ranks[static_cast<size_t>(h)];
    host_of.push_back(h);
    local_of.push_back(static_cast<int>(there.size()));
    there.push_back(r);
  }
  host = host_of[static_cast<size_t>(rank)];
  local = local_of[static_cast<size_t>(rank)];
  const auto [least, largest] = std::minmax_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  rails = static_cast<int>(least->size());
  most = static_cast<int>(largest->size());
}

}  // namespace muster
