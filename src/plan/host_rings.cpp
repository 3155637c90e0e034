#include "plan/host_rings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace muster {

using topology::kNone;
using topology::Path;
using topology::PathClass;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();


// Largest flows by shortest augmenting paths (Edmonds and Karp, 1972); networks here have some hundred edges.
class FlowNetwork {
 public:
  explicit FlowNetwork(int nodes) : out_(at(nodes)) {}

  void edge(int from, int to, double capacity) {
    out_[at(from)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({to, capacity, 0});
    out_[at(to)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({from, 0, 0});
  }

  double largest(int from, int to) {
    for (Edge& e : edges_) e.left = e.capacity;
    double flow = 0;
    while (flow < kInfinite) {
      std::vector<int> by(out_.size(), kNone), queue{from};
      for (size_t i = 0; i < queue.size() && by[at(to)] == kNone; ++i)
        for (const int e : out_[at(queue[i])]) {
          const int next = edges_[at(e)].to;
          if (edges_[at(e)].left <= kTiny || by[at(next)] != kNone || next == from) continue;
          by[at(next)] = e;
          queue.push_back(next);
        }
      if (by[at(to)] == kNone) break;
      double more = kInfinite;
      for (int n = to; n != from; n = edges_[at(by[at(n)] ^ 1)].to)
        more = std::min(more, edges_[at(by[at(n)])].left);
      flow += more;
      if (more == kInfinite) break;
      for (int n = to; n != from; n = edges_[at(by[at(n)] ^ 1)].to) {
        edges_[at(by[at(n)])].left -= more;
        edges_[at(by[at(n)] ^ 1)].left += more;
      }
    }
    return flow;
  }

 private:
  static constexpr double kTiny = 1e-9;  // GB/s: what rounding leaves
  struct Edge {
    int to;
    double capacity, left;
  };
  std::vector<Edge> edges_;
  std::vector<std::vector<int>> out_;
};

}  // namespace

HostRings::HostRings(const topology::Machine& m, std::vector<int> members, std::vector<GatePort> in_ports,
                     std::vector<GatePort> out_ports)
    : members_(std::move(members)),
      size_(static_cast<int>(members_.size())),
      in_ports_(static_cast<int>(in_ports.size())),
      out_ports_(static_cast<int>(out_ports.size())) {
  for (const topology::Link& l : m.links) capacity_.insert(capacity_.end(), 2, l.rate.gb_per_s);
  first_in_ = static_cast<int>(capacity_.size());
  for (const GatePort& p : in_ports) capacity_.push_back(p.gbytes_per_s);
  first_out_ = static_cast<int>(capacity_.size());
  for (const GatePort& p : out_ports) capacity_.push_back(p.gbytes_per_s);
  make_ways(m, in_ports, out_ports);
  choose_class();
  find_bundles();
  find_roof(m);
}

HostRings::Way HostRings::way_of(const topology::Machine& m, const Path& p) const {
  Way w{p.path_class, kInfinite, {}, kNone, kNone, kNone};
  if (!w.open()) return w;
  for (size_t i = 0; i < p.links.size(); ++i) {
    const topology::Link& l = m.links[at(p.links[i])];
    if (l.kind == topology::LinkKind::network) continue;  // the port's own resources stand for it
    if (w.first == kNone) w.first = p.nodes[i];
    w.last = p.nodes[i + 1];
    w.resources.push_back(2 * p.links[i] + (l.a == p.nodes[i] ? 0 : 1));
    w.gbytes_per_s = std::min(w.gbytes_per_s, l.rate.gb_per_s);
  }
  if (w.first == kNone) w.first = w.last = p.nodes.front();
  return w;
}

void HostRings::make_ways(const topology::Machine& m, const std::vector<GatePort>& in_ports,
                          const std::vector<GatePort>& out_ports) {
  std::map<int, std::vector<Path>> paths;  // of each node that is a member's
  std::vector<int> nodes;
  std::map<int, int> place;
  for (const int node : members_) {
    if (place.try_emplace(node, static_cast<int>(nodes.size())).second) {
      nodes.push_back(node);
      paths[node] = paths_from(m, node);
    }
    place_of_.push_back(place[node]);
  }
  places_ = static_cast<int>(nodes.size());
  for (const int from : nodes)
    for (const int to : nodes) hops_.push_back(way_of(m, paths[from][at(to)]));

  const auto to_port = [&](const GatePort& port, int member) {
    const int node = members_[at(member)];
    if (port.node != kNone) return way_of(m, paths[node][at(port.node)]);
    return Way{PathClass::net, port.gbytes_per_s, {}, node, node, kNone};
  };
  for (size_t p = 0; p < in_ports.size(); ++p)
    for (int i = 0; i < size_; ++i) {
      Way w = to_port(in_ports[p], i);  // the other way round
      std::reverse(w.resources.begin(), w.resources.end());
      for (int& r : w.resources) r ^= 1;
      std::swap(w.first, w.last);
      w.resources.insert(w.resources.begin(), first_in_ + static_cast<int>(p));
      in_.push_back(std::move(w));
    }
  for (size_t p = 0; p < out_ports.size(); ++p) {
    std::vector<Way> direct;
    for (int i = 0; i < size_; ++i) direct.push_back(to_port(out_ports[p], i));
    for (int i = 0; i < size_; ++i) {
      Way w = direct[at(i)];
      // By way of a member's GPU that has only PCI switches between itself and the port, where NVLink leads
      // to it.
      for (int g = 0; g < size_ && direct[at(i)].path_class > PathClass::pxn; ++g) {
        const Way &there = hop(i, g), &on = direct[at(g)];
        if (there.path_class != PathClass::nvl || on.path_class > PathClass::pxb) continue;
        const double rate = std::min(there.gbytes_per_s, on.gbytes_per_s);
        if (w.path_class == PathClass::pxn && w.gbytes_per_s >= rate) continue;
        w = Way{PathClass::pxn, rate, there.resources, there.first, on.last, g};
        w.resources.insert(w.resources.end(), on.resources.begin(), on.resources.end());
      }
      w.resources.push_back(first_out_ + static_cast<int>(p));
      out_.push_back(std::move(w));
    }
  }
}

template <class Use>
void HostRings::each_way(Use use) const {
  for (int i = 0; i < size_; ++i)
    for (int j = 0; j < size_; ++j)
      if (i != j && may_hop(i, j)) use(hop(i, j), i, j);
  for (int i = 0; i < size_; ++i) {
    for (int p = 0; p < in_ports_; ++p)
      if (in(p, i).open()) use(in(p, i), kNone, i);
    for (int p = 0; p < out_ports_; ++p)
      if (out(p, i).open()) use(out(p, i), i, kNone);
  }
}

// Which classes hops may have: NVLink alone where there is a ring of NVLinks, and so on.
void HostRings::choose_class() {
  std::set<PathClass> classes{PathClass::loc};
  for (const Way& w : hops_)
    if (w.open()) classes.insert(w.path_class);
  for (const PathClass c : classes) {
    farthest_ = c;
    int64_t steps = 1 << 14;
    if (!find(0, 1, false, steps).empty()) return;
  }
}

void HostRings::find_roof(const topology::Machine& m) {
  const int nodes = static_cast<int>(m.nodes.size()), outside = nodes, ports = nodes + 1;
  FlowNetwork network(ports + in_ports_ + out_ports_);
  std::set<std::pair<int, int>> joined;  // without limit
  const auto join = [&](int from, int to) {
    if (joined.insert({from, to}).second) network.edge(from, to, kInfinite);
  };
  std::vector<char> used(capacity_.size());
  each_way([&](const Way& w, int from, int to) {
    for (const int r : w.resources) {
      if (std::exchange(used[at(r)], 1)) continue;
      if (r >= first_out_)
        network.edge(ports + in_ports_ + r - first_out_, outside, capacity_[at(r)]);
      else if (r >= first_in_)
        network.edge(outside, ports + r - first_in_, capacity_[at(r)]);
      else if (const topology::Link& l = m.links[at(r / 2)]; r % 2)
        network.edge(l.b, l.a, capacity_[at(r)]);
      else
        network.edge(l.a, l.b, capacity_[at(r)]);
    }
    if (from == kNone) join(ports + w.resources.front() - first_in_, w.first);
    if (to == kNone) join(w.last, ports + in_ports_ + w.resources.back() - first_out_);
  });
  const int start = in_ports_ ? outside : members_.front();
  roof_ = kInfinite;
  for (const int node : std::set<int>(members_.begin(), members_.end()))
    if (node != start) roof_ = std::min({roof_, network.largest(start, node), network.largest(node, start)});

  // A member's two neighbours on a ring differ: rings that move `roof` together use each neighbour for `roof`
  // at most, to and fro, and need 2 * roof. So 2 * roof <= sum(min(d, roof)), where d is what joins it with a
  // neighbour in both directions.
  const int neighbours = size_ - 1 + (in_ports_ > 0);
  for (int i = 0; i < size_ && neighbours >= 2; ++i) {
    double ports_sum = 0;
    for (int p = 0; p < in_ports_; ++p)
      ports_sum += std::min(in(p, i).gbytes_per_s, capacity_[at(first_in_ + p)]);
    for (int p = 0; p < out_ports_; ++p)
      ports_sum += std::min(out(p, i).gbytes_per_s, capacity_[at(first_out_ + p)]);
    double sum = ports_sum, largest = ports_sum;
    for (int j = 0; j < size_; ++j) {
      if (j == i || !may_hop(i, j)) continue;
      const double d = hop(i, j).gbytes_per_s + hop(j, i).gbytes_per_s;
      sum += d;
      largest = std::max(largest, d);
    }
    if (largest < kInfinite) roof_ = std::min({roof_, sum - largest, sum / 2});
  }
}

void HostRings::find_bundles() {
  // The outside is the last.
  std::vector<std::set<int>> sends(at(size_) + 1), receives(at(size_) + 1);
  std::vector<char> free_send(at(size_) + 1), free_receive(at(size_) + 1);
  each_way([&](const Way& w, int from, int to) {
    const size_t f = at(from == kNone ? size_ : from), t = at(to == kNone ? size_ : to);
    if (w.resources.empty()) {
      free_send[f] = free_receive[t] = 1;
      return;
    }
    sends[f].insert(w.resources.front());
    receives[t].insert(w.resources.back());
  });
  bundles_.clear();
  for (size_t i = 0; i <= at(size_); ++i) {
    if (!free_send[i] && !sends[i].empty()) bundles_.push_back({sends[i].begin(), sends[i].end()});
    if (!free_receive[i] && !receives[i].empty())
      bundles_.push_back({receives[i].begin(), receives[i].end()});
  }
}

int HostRings::most_rings(double gbytes_per_s) const {
  const auto fit = [&](double capacity) {
    return capacity == kInfinite ? 1e9 : std::floor(capacity / gbytes_per_s * (1 + 1e-9));
  };
  double most = fit(roof_);
  for (const std::vector<int>& links : bundles_) {
    double sum = 0;
    for (const int r : links) sum += fit(capacity_[at(r)]);
    most = std::min(most, sum);
  }
  return static_cast<int>(std::min(most, 1e9));
}

std::vector<double> HostRings::capacities() const {
  std::set<double> distinct;
  each_way([&](const Way& w, int, int) {
    for (const int r : w.resources)
      if (const double c = capacity_[at(r)]; c > 0 && c < kInfinite) distinct.insert(c);
  });
  return {distinct.begin(), distinct.end()};
}

HostRing HostRings::in_order(bool same_port) const {
  HostRing ring;
  for (int i = 0; i < size_; ++i) ring.order.push_back(i);
  const auto nearer = [](const Way& a, const Way& b) {
    return a.path_class != b.path_class ? a.path_class < b.path_class : a.gbytes_per_s > b.gbytes_per_s;
  };
  for (int p = 0; p < in_ports_; ++p)
    if (ring.in_port == kNone || nearer(in(p, 0), in(ring.in_port, 0))) ring.in_port = p;
  for (int p = 0; p < out_ports_; ++p)
    if (ring.out_port == kNone || nearer(out(p, size_ - 1), out(ring.out_port, size_ - 1))) ring.out_port = p;
  if (same_port) ring.out_port = ring.in_port;
  if (ring.out_port != kNone) ring.by_way_of = out(ring.out_port, size_ - 1).by_way_of;
  return ring;
}

double HostRings::speed_of(std::span<const HostRing> rings) const {
  std::vector<int> uses(capacity_.size());
  bool open = true;
  const auto use = [&](const Way& w) {
    open = open && w.open();
    for (const int r : w.resources) ++uses[at(r)];
  };
  for (const HostRing& ring : rings) {
    for (size_t i = 1; i < ring.order.size(); ++i) use(hop(ring.order[i - 1], ring.order[i]));
    if (ring.in_port == kNone) {
      use(hop(ring.order.back(), ring.order.front()));
    } else {
      use(in(ring.in_port, ring.order.front()));
      use(out(ring.out_port, ring.order.back()));
    }
  }
  double speed = open ? kInfinite : 0;
  for (size_t r = 0; r < uses.size(); ++r)
    if (uses[r]) speed = std::min(speed, capacity_[r] / uses[r]);
  return speed;
}

PathClass HostRings::farthest_hop(std::span<const HostRing> rings) const {
  PathClass farthest = PathClass::loc;
  for (const HostRing& ring : rings) {
    for (size_t i = 1; i < ring.order.size(); ++i)
      farthest = std::max(farthest, hop(ring.order[i - 1], ring.order[i]).path_class);
    if (ring.in_port == kNone)
      farthest = std::max(farthest, hop(ring.order.back(), ring.order.front()).path_class);
  }
  return farthest;
}

PathClass HostRings::farthest_port(std::span<const HostRing> rings) const {
  PathClass farthest = PathClass::loc;
  for (const HostRing& ring : rings)
    if (ring.in_port != kNone)
      farthest = std::max({farthest, in(ring.in_port, ring.order.front()).path_class,
                           out(ring.out_port, ring.order.back()).path_class});
  return farthest;
}

}  // namespace muster
