#include "plan/links.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "topology/nearest_ports.h"

namespace muster {

using namespace topology;

namespace {

struct HostLinks {
  Near near = Near::nvlink;
  int sm = 0, channels = 1, port_count = 1;
  bool switched = false;
  double rings = std::numeric_limits<double>::infinity(), exchange = 0, ports = 0;
  Network network = Network::unknown;
};

Near near_of(PathClass c) {
  switch (c) {
    case PathClass::loc:
    case PathClass::nvl:
    case PathClass::nvb:
    case PathClass::c2c:
      return Near::nvlink;
    case PathClass::pix:
    case PathClass::pxb:
      return Near::pcie;
    default:
      return Near::cpu;
  }
}

// The ports that the GPUs would use, each once.
void add_ports(const Cluster& c, const Machine& m, const std::vector<int>& gpus, const Constants& k,
               HostLinks& h) {
  const auto nearest = nearest_ports(m);
  std::set<int> used;
  for (const int gpu : gpus) {
    const auto& choices = nearest[static_cast<size_t>(gpu)];
    if (choices.empty() || !used.insert(choices.front().port).second) continue;
    const auto& [port, path, gpudirect, why] = choices.front();
    const double gbit = c.fabric.gbit_per_s > 0 ? c.fabric.gbit_per_s : m.port(port).gbit_per_s;
    const bool through_cpu = path.path_class >= PathClass::phb;
    const double reached = (gbit > 0 ? gbit / 8 : default_network_rate().gb_per_s) *
                           k.of("gpu.network.share", through_cpu ? "phb" : "");
    h.ports += std::min(reached, path.rate.gb_per_s);
    h.network = c.fabric.network != Network::unknown ? c.fabric.network : m.port(port).network;
  }
  h.port_count = static_cast<int>(used.size());
}

// What each member exchanges with all the others at once, alike with each: every link carries the pairs whose
// path it is on.
double exchange_of(const Machine& m, const std::vector<int>& members) {
  const double infinite = std::numeric_limits<double>::infinity();
  std::map<std::pair<int, bool>, int> pairs;  // by link and direction
  for (const int from : members) {
    const std::vector<Path> paths = paths_from(m, from);
    for (const int to : members) {
      if (from == to) continue;
      const Path& path = paths[static_cast<size_t>(to)];
      if (path.path_class == PathClass::dis) return 0;
      for (size_t i = 0; i < path.links.size(); ++i) {
        const bool forward = m.links[static_cast<size_t>(path.links[i])].a == path.nodes[i];
        ++pairs[{path.links[i], forward}];
      }
    }
  }
  double exchange = infinite;
  for (const auto& [link, count] : pairs)
    exchange = std::min(exchange, m.links[static_cast<size_t>(link.first)].rate.gb_per_s *
                                      static_cast<double>(members.size() - 1) / count);
  return exchange;
}

HostLinks links_of_host(const Cluster& c, int host, const std::vector<int>& gpus, const Constants& k) {
  HostLinks h;
  const Machine& m = c.machine_of(host);
  const std::vector<int> all = m.all(Kind::gpu);
  std::vector<RankPlace> places;
  for (const int gpu : gpus) {
    if (gpu < 0 || gpu >= static_cast<int>(all.size()))
      fail(Result::invalid_argument, "host {} has {} GPUs: there is no number {}", c.host_name(host),
           all.size(), gpu);
    places.push_back({0, gpu});
  }
  if (gpus.size() > 1) {
    Cluster alone = cluster_of(m);
    const Rings rings = find_rings(alone, places);
    h.rings = rings.gbytes_per_s();
    h.channels = static_cast<int>(rings.channels.size());
    h.near = near_of(rings.inside);
  }
  h.switched = !m.all(Kind::nvswitch).empty();
  std::vector<int> members;
  for (const int gpu : gpus) {
    members.push_back(all[static_cast<size_t>(gpu)]);
    const int sm = m.gpu(members.back()).sm;
    if (sm > 0 && (h.sm == 0 || sm < h.sm)) h.sm = sm;
  }
  h.exchange = exchange_of(m, members);
  add_ports(c, m, gpus, k, h);
  return h;
}

// Are all hosts joined by the same NVSwitches?
bool in_one_domain(const Cluster& c, std::span<const RankPlace> ranks) {
  const int size = c.fabric.hosts_per_nvlink_domain;
  return size > 1 && std::all_of(ranks.begin(), ranks.end(), [&](const RankPlace& r) {
           return r.host / size == ranks.front().host / size;
         });
}

}  // namespace

const char* name_of(Near n) {
  switch (n) {
    case Near::nvlink:
      return "NVLink";
    case Near::pcie:
      return "PCIe";
    case Near::cpu:
      return "CPU interconnect";
  }
  return "";
}

Links links_of(const Cluster& c, std::span<const RankPlace> ranks, const Constants& constants) {
  std::vector<std::vector<int>> gpus_of(static_cast<size_t>(c.host_count()));
  for (const RankPlace& r : ranks) {
    if (r.host < 0 || r.host >= c.host_count())
      fail(Result::invalid_argument, "the cluster has {} hosts: there is no number {}", c.host_count(),
           r.host);
    gpus_of[static_cast<size_t>(r.host)].push_back(r.gpu);
  }
  Links l;
  l.spread.ranks = static_cast<int>(ranks.size());
  l.spread.hosts = 0;
  l.spread.per_host = 0;
  l.rings = l.exchange = l.ports = std::numeric_limits<double>::infinity();
  std::map<std::pair<const Machine*, std::vector<int>>, HostLinks> known;
  bool first = true;
  for (int host = 0; host < c.host_count(); ++host) {
    std::vector<int>& gpus = gpus_of[static_cast<size_t>(host)];
    if (gpus.empty()) continue;
    std::sort(gpus.begin(), gpus.end());
    const auto [it, is_new] = known.try_emplace({&c.machine_of(host), gpus});
    if (is_new) it->second = links_of_host(c, host, gpus, constants);
    const HostLinks& h = it->second;
    ++l.spread.hosts;
    const int here = static_cast<int>(gpus.size());
    l.spread.per_host = std::max(l.spread.per_host, here);
    l.spread.least = first ? here : std::min(l.spread.least, here);
    l.near = std::max(l.near, h.near);
    if (h.sm > 0 && (l.sm == 0 || h.sm < l.sm)) l.sm = h.sm;
    l.switched = (first || l.switched) && h.switched;
    l.near_channels = first ? h.channels : std::min(l.near_channels, h.channels);
    l.port_count = first ? h.port_count : std::min(l.port_count, h.port_count);
    l.rings = std::min(l.rings, h.rings);
    l.exchange = std::min(l.exchange, h.exchange);
    l.ports = std::min(l.ports, h.ports);
    l.network = h.network;
    first = false;
  }
  if (l.spread.hosts == 0) fail(Result::invalid_argument, "there are no ranks");
  if (l.spread.hosts > 1 && in_one_domain(c, ranks)) {
    l.spread = {l.spread.ranks, 1, l.spread.ranks};
    l.near = Near::nvlink;
    l.switched = true;
    const Rings rings = find_rings(c, ranks);
    l.rings = rings.gbytes_per_s();
    l.near_channels = static_cast<int>(rings.channels.size());
  } else if (l.spread.hosts > 1) {
    if (l.port_count == 0)
      fail(Result::invalid_argument,
           "nothing joins the hosts: there is one without network ports. Describe its cards "
           "(docs/topology.md), or plan for one host (--ranks)");
    if (c.fabric.hosts_per_leaf > 0 && l.spread.hosts > c.fabric.hosts_per_leaf) {
      l.oversubscription = std::max(1.0, c.fabric.oversubscription);
      l.hosts_per_leaf = c.fabric.hosts_per_leaf;
    }
  }
  return l;
}

std::vector<RankPlace> all_gpus(const Cluster& c) {
  std::vector<RankPlace> places;
  for (int host = 0; host < c.host_count(); ++host) {
    const int gpus = static_cast<int>(c.machine_of(host).all(Kind::gpu).size());
    for (int g = 0; g < gpus; ++g) places.push_back({host, g});
  }
  return places;
}

}  // namespace muster
