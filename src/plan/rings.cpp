#include "plan/rings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "plan/host_rings.h"

namespace muster {

using topology::Cluster;
using topology::kNone;
using topology::Machine;
using topology::PathClass;

namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
// A set of rings that moves so much more goes before one of fewer rings, or of rings that stay on their rail.
constexpr double kWorthIt = 1.01;
// Hops tried (some 100 ns each), by one attempt at a speed and by all of them: first a little at every
// promising speed, then more at those that could still be better.
struct Effort {
  int64_t per_attempt, in_all;
};
constexpr Effort kEfforts[] = {{1 << 9, 1 << 16}, {1 << 13, 1 << 17}};


// How rings pass from host to host.
enum class Gate : uint8_t { none, ports, nvswitch };

// Ranks of one host, ascending.
struct HostRanks {
  int host = 0, shape = 0;
  std::vector<int> ranks;
  std::vector<int> members;  // their nodes
  Gate in = Gate::none, out = Gate::none;
  int kind = 0;
};

// Hosts alike in shape, members and neighbours: searched once.
struct HostKind {
  HostRings rings;
  std::vector<GatePort> in_ports, out_ports;
  bool ports_at_both = false;
};

// Rings of every kind, equally many, at one speed.
struct RingSet {
  double speed = 0;
  std::vector<std::vector<HostRing>> of_kind;
  int rings() const { return of_kind.empty() ? 0 : static_cast<int>(of_kind.front().size()); }
  double total() const { return rings() ? speed * rings() : 0; }
};

std::vector<int> member_nodes(const Machine& m, std::span<const RankPlace> places, const HostRanks& h) {
  const std::vector<int> gpus = m.all(topology::Kind::gpu), numas = m.all(topology::Kind::numa);
  const auto without = static_cast<size_t>(
      std::count_if(h.ranks.begin(), h.ranks.end(), [&](int r) { return places[at(r)].gpu == kNone; }));
  size_t seen = 0;
  std::vector<int> nodes;
  for (const int r : h.ranks) {
    const int gpu = places[at(r)].gpu;
    if (gpu == kNone) {
      if (numas.empty())
        fail(Result::invalid_argument,
             "rank {} is said to be in host memory, and host {} has no NUMA node; say which GPU it has", r,
             h.host);
      nodes.push_back(numas[seen++ * numas.size() / without]);  // spread evenly
    } else {
      if (gpu < 0 || at(gpu) >= gpus.size())
        fail(Result::invalid_argument, "rank {} is said to have GPU {} of host {}, which has {} GPUs", r, gpu,
             h.host, gpus.size());
      nodes.push_back(gpus[at(gpu)]);
    }
  }
  return nodes;
}

// Hosts that have ranks, in the cluster's order, so that neighbours on a ring are at one leaf where possible.
std::vector<HostRanks> hosts_of(const Cluster& c, std::span<const RankPlace> places) {
  std::vector<int> shape_of;
  for (const topology::HostGroup& g : c.hosts) shape_of.insert(shape_of.end(), at(g.count), g.shape);
  std::vector<HostRanks> all(shape_of.size());
  for (size_t r = 0; r < places.size(); ++r) {
    const int host = places[r].host;
    if (host < 0 || at(host) >= all.size())
      fail(Result::invalid_argument, "rank {} is said to be on host {}, and the cluster has {}", r, host,
           all.size());
    all[at(host)].ranks.push_back(static_cast<int>(r));
  }
  std::vector<HostRanks> hosts;
  for (size_t h = 0; h < all.size(); ++h) {
    if (all[h].ranks.empty()) continue;
    all[h].host = static_cast<int>(h);
    all[h].shape = shape_of[h];
    all[h].members = member_nodes(*c.shapes[at(shape_of[h])], places, all[h]);
    hosts.push_back(std::move(all[h]));
  }
  return hosts;
}

void choose_gates(const Cluster& c, std::vector<HostRanks>& hosts) {
  if (hosts.size() < 2) return;
  std::vector<char> has_nvswitch;
  for (const auto& m : c.shapes) has_nvswitch.push_back(!m->all(topology::Kind::nvswitch).empty());
  const int domain = std::max(1, c.fabric.hosts_per_nvlink_domain);
  for (size_t i = 0; i < hosts.size(); ++i) {
    HostRanks &a = hosts[i], &b = hosts[(i + 1) % hosts.size()];
    const bool joined =
        a.host / domain == b.host / domain && has_nvswitch[at(a.shape)] && has_nvswitch[at(b.shape)];
    a.out = b.in = joined ? Gate::nvswitch : Gate::ports;
  }
}

// What of its rate a port has for what leaves its leaf switch: a ring passes the uplinks once per leaf.
double rate_of(const topology::Fabric& f, double gbit_per_s, double link_rate) {
  double rate = gbit_per_s > 0  ? gbit_per_s / 8
                : link_rate > 0 ? link_rate
                                : topology::default_network_rate().gb_per_s;
  if (f.gbit_per_s > 0) rate = gbit_per_s > 0 ? std::min(rate, f.gbit_per_s / 8) : f.gbit_per_s / 8;
  if (f.hosts_per_leaf > 0)
    rate = std::min(rate, rate * f.hosts_per_leaf / std::max(1.0, f.oversubscription));
  return rate;
}

// Ports on the fabric, in their order: the rails. Where the fabric isn't known and some are made for such
// traffic (InfiniBand, RoCE, EFA), the Ethernet ones serve something else.
std::vector<GatePort> ports_of(const Machine& m, const topology::Fabric& f) {
  using topology::Network;
  const std::vector<int> all = m.all(topology::Kind::port);
  const bool fast = std::any_of(all.begin(), all.end(), [&](int p) {
    const Network n = m.port(p).network;
    return n == Network::infiniband || n == Network::roce || n == Network::efa;
  });
  std::vector<GatePort> ports;
  for (const int p : all) {
    const topology::Port& port = m.port(p);
    const bool fits = f.network == Network::unknown
                          ? !(fast && port.network == Network::ethernet)
                          : port.network == f.network || port.network == Network::unknown;
    if (!fits || port.up == topology::Answer3::no || m[p].hidden) continue;
    const int link = m.up_link(p);
    ports.push_back({p, rate_of(f, port.gbit_per_s, link == kNone ? 0 : m.links[at(link)].rate.gb_per_s)});
  }
  if (ports.empty()) ports.push_back({kNone, rate_of(f, 0, 0)});
  return ports;
}

std::vector<GatePort> ways_through(Gate gate, const Machine& m, const topology::Fabric& f) {
  if (gate == Gate::ports) return ports_of(m, f);
  if (gate == Gate::nvswitch) return {{m.all(topology::Kind::nvswitch).front(), kUnbounded}};
  return {};
}

std::vector<HostKind> kinds_of(const Cluster& c, std::vector<HostRanks>& hosts) {
  std::vector<HostKind> kinds;
  std::map<std::tuple<int, Gate, Gate, std::vector<int>>, int> known;
  for (HostRanks& h : hosts) {
    const auto [k, is_new] =
        known.try_emplace({h.shape, h.in, h.out, h.members}, static_cast<int>(kinds.size()));
    h.kind = k->second;
    if (!is_new) continue;
    const Machine& m = *c.shapes[at(h.shape)];
    auto in = ways_through(h.in, m, c.fabric), out = ways_through(h.out, m, c.fabric);
    HostRings rings(m, h.members, in, out);
    kinds.push_back(
        {std::move(rings), std::move(in), std::move(out), h.in == Gate::ports && h.out == Gate::ports});
  }
  return kinds;
}

// Speeds worth trying, the most promising first, and of nearly equal ones those of fewer rings. The best
// speed of n rings leaves no room on some resource that j of them share: it is its capacity / j. The roof / j
// is best where rings can share everything evenly.
std::vector<std::pair<double, int>> promising_speeds(const std::vector<HostKind>& kinds, int most) {
  std::vector<double> bases, speeds;
  for (const HostKind& k : kinds) {
    bases.push_back(k.rings.roof());
    const std::vector<double> c = k.rings.capacities();
    bases.insert(bases.end(), c.begin(), c.end());
  }
  for (const double base : bases)
    for (int j = 1; j <= most && base < kUnbounded; ++j) speeds.push_back(base / j);
  std::sort(speeds.begin(), speeds.end());
  speeds.erase(std::unique(speeds.begin(), speeds.end()), speeds.end());

  std::vector<std::pair<double, int>> promising;  // speed, rings that may fit
  for (const double s : speeds) {
    if (s <= 0) continue;
    int rings = most;
    for (const HostKind& k : kinds) rings = std::min(rings, k.rings.most_rings(s));
    if (rings > 0) promising.push_back({s, rings});
  }
  double top = 0;
  for (const auto& [speed, rings] : promising) top = std::max(top, speed * rings);
  const auto key = [&](const std::pair<double, int>& p) {
    return std::tuple(std::floor((top - p.first * p.second) / (top * (kWorthIt - 1))), p.second, -p.first);
  };
  std::sort(promising.begin(), promising.end(),
            [&](const auto& x, const auto& y) { return key(x) < key(y); });
  return promising;
}

// The equal number of rings that all kinds have, as fast as these can be.
RingSet equal_set(const std::vector<HostKind>& kinds, std::vector<std::vector<HostRing>> of_kind) {
  size_t rings = of_kind.front().size();
  for (const auto& r : of_kind) rings = std::min(rings, r.size());
  RingSet set{kUnbounded, std::move(of_kind)};
  for (size_t k = 0; k < kinds.size(); ++k) {
    set.of_kind[k].resize(rings);
    set.speed = std::min(set.speed, kinds[k].rings.speed_of(set.of_kind[k]));
  }
  return set;
}

// Whether a set that moves `total` in `rings` rings goes before the best so far.
bool better(double total, int rings, const RingSet& best) {
  if (best.of_kind.empty() || total > best.total() * kWorthIt) return true;
  return total * kWorthIt >= best.total() && rings < best.rings();
}

// Takes what it tries from `steps`.
void attempt(const std::vector<HostKind>& kinds, bool cross_nic, double speed, int rings, int64_t per_attempt,
             int64_t& steps, RingSet& best) {
  std::vector<std::vector<HostRing>> found;
  for (const HostKind& k : kinds) {
    const int64_t share = std::min(per_attempt, steps / static_cast<int64_t>(kinds.size()));
    int64_t of_attempt = std::max(share, k.rings.steps_straight(rings));
    steps -= of_attempt;
    found.push_back(k.rings.find(speed, rings, !cross_nic && k.ports_at_both, of_attempt));
    steps += of_attempt;
    rings = std::min(rings, static_cast<int>(found.back().size()));
    if (rings == 0) return;
  }
  RingSet set = equal_set(kinds, std::move(found));
  if (better(set.total(), set.rings(), best)) best = std::move(set);
}

RingSet search_set(const std::vector<HostKind>& kinds, bool cross_nic, int most) {
  RingSet best;
  const auto promising = promising_speeds(kinds, most);
  int64_t steps = 0;
  for (const Effort& effort : kEfforts) {
    steps = effort.in_all;
    for (const auto& [speed, rings] : promising) {
      if (steps <= 0 && !best.of_kind.empty()) break;
      if (better(speed * rings, rings, best))
        attempt(kinds, cross_nic, speed, rings, effort.per_attempt, steps, best);
    }
  }
  // No link at all between ranks, or paths that a ring passes more than once.
  if (best.of_kind.empty()) attempt(kinds, cross_nic, 0, 1, kEfforts[1].per_attempt, steps, best);
  return best;
}

RingSet in_order(const std::vector<HostKind>& kinds, bool cross_nic) {
  std::vector<std::vector<HostRing>> rings;
  for (const HostKind& k : kinds) rings.push_back({k.rings.in_order(!cross_nic && k.ports_at_both)});
  return equal_set(kinds, std::move(rings));
}

// Rings by their rail, so that those of kinds that differ meet on the same.
void sort_by_rail(const std::vector<HostKind>& kinds, RingSet& set) {
  for (size_t k = 0; k < kinds.size(); ++k) {
    const bool by_in = kinds[k].in_ports.size() >= kinds[k].out_ports.size();
    std::stable_sort(set.of_kind[k].begin(), set.of_kind[k].end(), [&](const HostRing& a, const HostRing& b) {
      return by_in ? a.in_port < b.in_port : a.out_port < b.out_port;
    });
  }
}

// Where rings change the port, a host that is passed backwards sends on from the rail that the next one
// receives on: links carry as much in either direction. (Not where a GPU hands on to a port: what comes in
// goes to its own memory.)
std::vector<char> choose_directions(const std::vector<HostRanks>& hosts, const std::vector<HostKind>& kinds,
                                    const RingSet& set) {
  std::vector<char> backwards(hosts.size());
  for (size_t h = 1; h < hosts.size(); ++h) {
    const HostRanks &before = hosts[h - 1], &host = hosts[h];
    const auto &theirs = set.of_kind[at(before.kind)], &ours = set.of_kind[at(host.kind)];
    if (!kinds[at(host.kind)].ports_at_both || !kinds[at(before.kind)].ports_at_both) continue;
    if (std::any_of(ours.begin(), ours.end(), [](const HostRing& r) { return r.by_way_of != kNone; }))
      continue;
    int forwards_fit = 0, backwards_fit = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      const int leaves = backwards[h - 1] ? theirs[i].in_port : theirs[i].out_port;
      forwards_fit += leaves == ours[i].in_port;
      backwards_fit += leaves == ours[i].out_port;
    }
    backwards[h] = backwards_fit > forwards_fit;
  }
  return backwards;
}

// Ring number `i` through all hosts, beginning with rank 0.
RingChannel join_hosts(const std::vector<HostRanks>& hosts, const std::vector<HostKind>& kinds,
                       const RingSet& set, const std::vector<char>& backwards, size_t i) {
  RingChannel channel;
  std::vector<Crossing> crossings(hosts.size() > 1 ? hosts.size() : 0);
  for (size_t h = 0; h < hosts.size(); ++h) {
    const HostRanks& host = hosts[h];
    const HostKind& kind = kinds[at(host.kind)];
    HostRing ring = set.of_kind[at(host.kind)][i];
    if (backwards[h]) {
      std::reverse(ring.order.begin(), ring.order.end());
      std::swap(ring.in_port, ring.out_port);
    }
    if (hosts.size() > 1) {
      const auto node = [](const std::vector<GatePort>& ports, int p, Gate gate) {
        return gate == Gate::ports ? ports[at(p)].node : kNone;
      };
      Crossing &in = crossings[(h + hosts.size() - 1) % hosts.size()], &out = crossings[h];
      in.to = host.ranks[at(ring.order.front())];
      in.to_port = node(kind.in_ports, ring.in_port, host.in);
      out.from = host.ranks[at(ring.order.back())];
      out.from_port = node(kind.out_ports, ring.out_port, host.out);
      if (ring.by_way_of != kNone) out.by_way_of = host.ranks[at(ring.by_way_of)];
    }
    for (const int member : ring.order) channel.ranks.push_back(host.ranks[at(member)]);
  }
  channel.crossings = std::move(crossings);
  const auto first = std::find(channel.ranks.begin(), channel.ranks.end(), 0);
  size_t hosts_before = 0;  // whose last rank comes before rank 0
  for (size_t h = 0, end = 0; h < hosts.size(); ++h) {
    end += hosts[h].ranks.size();
    if (end <= static_cast<size_t>(first - channel.ranks.begin())) ++hosts_before;
  }
  std::rotate(channel.ranks.begin(), first, channel.ranks.end());
  if (!channel.crossings.empty())
    std::rotate(channel.crossings.begin(),
                channel.crossings.begin() + static_cast<std::ptrdiff_t>(hosts_before),
                channel.crossings.end());
  return channel;
}

}  // namespace

Rings find_rings(const Cluster& cluster, std::span<const RankPlace> ranks, const RingSearch& search) {
  if (search.most_channels < 1 || search.least_channels > search.most_channels || search.cross_nic < 0 ||
      search.cross_nic > 2)
    fail(Result::invalid_argument,
         "ring search: most_channels {}, least_channels {}, cross_nic {}; say at least 1 channel, least not "
         "above most, "
         "and cross_nic 0, 1 or 2",
         search.most_channels, search.least_channels, search.cross_nic);
  Rings result;
  std::vector<HostRanks> hosts = hosts_of(cluster, ranks);
  if (hosts.empty()) return result;
  choose_gates(cluster, hosts);
  const std::vector<HostKind> kinds = kinds_of(cluster, hosts);

  RingSet set = search_set(kinds, search.cross_nic == 1, search.most_channels);
  const bool may_change =
      std::any_of(kinds.begin(), kinds.end(), [](const HostKind& k) { return k.ports_at_both; });
  if (search.cross_nic == 2 && may_change)
    if (RingSet crossed = search_set(kinds, true, search.most_channels);
        crossed.total() > set.total() * kWorthIt)
      set = std::move(crossed);
  if (set.of_kind.empty()) {
    result.fallback = true;
    set = in_order(kinds, search.cross_nic != 0);
  }

  sort_by_rail(kinds, set);
  const std::vector<char> backwards = choose_directions(hosts, kinds, set);
  for (size_t k = 0; k < kinds.size(); ++k) {
    const std::vector<HostRing>& rings = set.of_kind[k];
    result.inside = std::max(result.inside, kinds[k].rings.farthest_hop(rings));
    result.outside = std::max(result.outside, kinds[k].rings.farthest_port(rings));
    if (kinds[k].ports_at_both)
      for (const HostRing& r : rings) result.cross_nic = result.cross_nic || r.in_port != r.out_port;
  }

  const int found = set.rings();
  const int repeats =
      std::max(1, std::min((search.least_channels + found - 1) / found, search.most_channels / found));
  for (int i = 0; i < found; ++i) {
    result.channels.push_back(join_hosts(hosts, kinds, set, backwards, at(i)));
    result.channels.back().gbytes_per_s = set.speed / repeats;
  }
  for (int i = found; i < found * repeats; ++i) result.channels.push_back(result.channels[at(i - found)]);
  return result;
}

Rings rings_of_channels(const Cluster& cluster, std::span<const RankPlace> ranks, int channels, int cross_nic) {
  return find_rings(cluster, ranks, {.most_channels = channels, .least_channels = channels, .cross_nic = cross_nic});
}

std::vector<std::vector<int>> orders_of(const Rings& rings) {
  std::vector<std::vector<int>> orders;
  for (const RingChannel& c : rings.channels) orders.push_back(c.ranks);
  return orders;
}

}  // namespace muster
