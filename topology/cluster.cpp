#include "topology/cluster.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "topology/nearest_ports.h"

namespace muster::topology {
namespace {

// The group of a host, and its number there.
std::pair<size_t, int> place_of(const Cluster& c, int host) {
  int left = host;
  for (size_t g = 0; g < c.hosts.size(); ++g) {
    if (left >= 0 && left < c.hosts[g].count) return {g, left};
    left -= c.hosts[g].count;
  }
  fail(Result::invalid_argument, "host {} is not in 0..{}", host, c.host_count() - 1);
}

}  // namespace

int Cluster::host_count() const {
  int n = 0;
  for (const HostGroup& g : hosts) n += g.count;
  return n;
}

int Cluster::gpu_count() const {
  int n = 0;
  for (const HostGroup& g : hosts) n += g.count * static_cast<int>(shapes[static_cast<size_t>(g.shape)]->all(Kind::gpu).size());
  return n;
}

const Machine& Cluster::machine_of(int host) const {
  return *shapes[static_cast<size_t>(hosts[place_of(*this, host).first].shape)];
}

std::string Cluster::host_name(int host) const {
  const auto [group, number] = place_of(*this, host);
  return hosts[group].count == 1 ? hosts[group].name : fmt::format("{}{}", hosts[group].name, number);
}

Cluster cluster_of(Machine m) {
  Cluster c;
  c.name = m.name;
  c.hosts.push_back({0, 1, m.name});
  c.shapes.push_back(std::make_shared<const Machine>(std::move(m)));
  return c;
}

}  // namespace muster::topology
