// Looks at rings independently of how they were found.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/rings.h"
#include "topology/cluster_file.h"
#include "topology/host_description.h"

namespace muster {

using topology::Cluster;
using topology::Kind;
using topology::kNone;
using topology::LinkKind;
using topology::Machine;
using topology::PathClass;

inline Cluster cluster(const std::string& hosts, const std::string& fabric = "{}") {
  return topology::read_cluster_file(
      fmt::format(R"({{"muster_cluster": 1, "hosts": [{}], "fabric": {}}})", hosts, fabric), "test.json",
      [](const std::string&) { return std::string(); });
}
inline Cluster ready(const std::string& name, int count = 1, const std::string& fabric = "{}") {
  return cluster(fmt::format(R"({{"count": {}, "ready": "{}"}})", count, name), fabric);
}

// The given GPUs of every host, or all of them, in order.
inline std::vector<RankPlace> places(const Cluster& c, const std::vector<int>& gpus = {}) {
  std::vector<RankPlace> all;
  for (int h = 0; h < c.host_count(); ++h) {
    const int count = static_cast<int>(gpus.empty() ? c.machine_of(h).all(Kind::gpu).size() : gpus.size());
    for (int i = 0; i < count; ++i) all.push_back({h, gpus.empty() ? i : gpus[static_cast<size_t>(i)]});
  }
  return all;
}

// What rings put on each link of each host, in each direction.
class Loads {
 public:
  Loads(const Cluster& c, const std::vector<RankPlace>& where) : c_(c), where_(where) {}

  void add(const RingChannel& channel, double amount) {
    std::map<std::pair<int, int>, const Crossing*> crossings;
    for (const Crossing& x : channel.crossings) crossings[{x.from, x.to}] = &x;
    const size_t n = channel.ranks.size();
    for (size_t i = 0; i < n && n > 1; ++i) {
      const int from = channel.ranks[i], to = channel.ranks[(i + 1) % n];
      if (const auto x = crossings.find({from, to}); x != crossings.end()) {
        cross(*x->second, amount);
      } else {
        EXPECT_EQ(host(from), host(to)) << from << " to " << to << " is no crossing";
        path(host(from), node(from), node(to), amount, false);
      }
    }
  }

  struct Worst {
    double share = 0;  // load / capacity
    std::string where;
  };
  Worst worst() const {
    Worst w;
    for (const auto& [key, load] : loads_) {
      const auto [h, l, from_a] = key;
      const double share = load / capacity(h, l);
      if (share > w.share) w = {share, fmt::format("host {} link {} {}", h, l, from_a ? "there" : "back")};
    }
    return w;
  }
  const std::map<std::tuple<int, int, bool>, double>& all() const { return loads_; }
  double capacity(int h, int l) const {
    const Machine& m = c_.machine_of(h);
    const topology::Link& link = m.links[static_cast<size_t>(l)];
    if (link.kind != LinkKind::network) return link.rate.gb_per_s;
    const int port = m[link.a].kind == Kind::port ? link.a : link.b;
    return m.port(port).gbit_per_s > 0 ? m.port(port).gbit_per_s / 8 : link.rate.gb_per_s;
  }
  // How often links of a kind are passed by one unit.
  double sum(LinkKind kind) const {
    double s = 0;
    for (const auto& [key, load] : loads_)
      if (c_.machine_of(std::get<0>(key)).links[static_cast<size_t>(std::get<1>(key))].kind == kind)
        s += load;
    return s;
  }

 private:
  int host(int rank) const { return where_[static_cast<size_t>(rank)].host; }
  int node(int rank) const {
    const int gpu = where_[static_cast<size_t>(rank)].gpu;
    return gpu == kNone ? kNone : c_.machine_of(host(rank)).all(Kind::gpu)[static_cast<size_t>(gpu)];
  }
  void path(int h, int from, int to, double amount, bool backwards) {
    if (from == kNone) return;  // host memory
    const Machine& m = c_.machine_of(h);
    const auto key = std::pair(&m, from);
    if (!paths_.count(key)) paths_[key] = topology::paths_from(m, from);
    const topology::Path& p = paths_[key][static_cast<size_t>(to)];
    for (size_t i = 0; i < p.links.size(); ++i) {
      const bool from_a = m.links[static_cast<size_t>(p.links[i])].a == p.nodes[i];
      loads_[{h, p.links[i], from_a != backwards}] += amount;
    }
  }
  void cross(const Crossing& x, double amount) {
    const int a = host(x.from), b = host(x.to);
    const auto switches = [&](int h) { return c_.machine_of(h).all(Kind::nvswitch); };
    const int domain = c_.fabric.hosts_per_nvlink_domain;
    if (domain > 1 && a / domain == b / domain) {
      EXPECT_EQ(x.from_port, kNone);
      path(a, node(x.from), switches(a).front(), amount, false);
      path(b, node(x.to), switches(b).front(), amount, true);
      return;
    }
    int last = node(x.from);
    if (x.by_way_of != kNone) {
      EXPECT_EQ(host(x.by_way_of), a);
      path(a, last, node(x.by_way_of), amount, false);
      last = node(x.by_way_of);
    }
    if (x.from_port != kNone) path(a, last, x.from_port, amount, false);
    if (x.to_port != kNone) path(b, node(x.to), x.to_port, amount, true);
  }

  const Cluster& c_;
  const std::vector<RankPlace>& where_;
  std::map<std::pair<const Machine*, int>, std::vector<topology::Path>> paths_;
  std::map<std::tuple<int, int, bool>, double> loads_;
};

// Every ring passes all ranks once, host by host; all together they fit on every link.
inline void expect_sound(const Cluster& c, const std::vector<RankPlace>& where, const Rings& rings,
                         const std::string& name = "") {
  SCOPED_TRACE(name);
  std::set<int> hosts;
  for (const RankPlace& p : where) hosts.insert(p.host);
  Loads loads(c, where);
  ASSERT_FALSE(rings.channels.empty());
  for (const RingChannel& channel : rings.channels) {
    std::vector<int> sorted = channel.ranks;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(sorted.size(), where.size());
    for (size_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], static_cast<int>(i));
    EXPECT_EQ(channel.ranks.front(), 0);
    EXPECT_EQ(channel.gbytes_per_s, rings.channels.front().gbytes_per_s);

    std::vector<std::pair<int, int>> changes, crossings;
    for (size_t i = 0; i < channel.ranks.size() && hosts.size() > 1; ++i) {
      const int from = channel.ranks[i], to = channel.ranks[(i + 1) % channel.ranks.size()];
      if (where[static_cast<size_t>(from)].host != where[static_cast<size_t>(to)].host)
        changes.push_back({from, to});
    }
    for (const Crossing& x : channel.crossings) crossings.push_back({x.from, x.to});
    ASSERT_EQ(crossings, changes);
    EXPECT_EQ(crossings.size(), hosts.size() > 1 ? hosts.size() : 0);
    if (channel.gbytes_per_s < std::numeric_limits<double>::infinity())
      loads.add(channel, channel.gbytes_per_s);
  }
  const Loads::Worst w = loads.worst();
  EXPECT_LE(w.share, 1 + 1e-6) << w.where;
}

}  // namespace muster
