#include "topology/host_paths.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"
#include "topology/nearest_ports.h"

namespace muster::topology {
namespace {

Rate narrower(Rate a, Rate b) { return b.gb_per_s < a.gb_per_s ? b : a; }

}  // namespace

bool HostPath::operator==(const HostPath& o) const {
  return path_class == o.path_class && network == o.network && from_port == o.from_port &&
         to_port == o.to_port && switches == o.switches && same_rail == o.same_rail &&
         rate.gb_per_s == o.rate.gb_per_s && rate_when_all.gb_per_s == o.rate_when_all.gb_per_s &&
         latency_us == o.latency_us;
}

struct HostPaths::Shape {
  // What brings a GPU's data to a port.
  struct Way {
    bool near = false;  // by PCI switches, C2C or NVLink: not through the CPU
    Rate rate;          // without the port's own
    Path path;
  };

  std::vector<int> gpus, ports;  // nodes; of the ports those on the fabric, a rail each
  std::vector<int> nearest;      // per GPU: number of its port; kNone: none
  std::vector<int> users;        // per port: GPUs whose nearest it is
  std::vector<Way> ways;         // per GPU and port
  std::vector<Rate> port_rates;
  std::vector<Network> networks;
  std::vector<Rate> nvlinks;  // per GPU: all of them together
  std::vector<Path> inside;   // per pair of GPUs

  Shape(const Machine& m, const Fabric& fabric);
  const Way& way(int gpu, int port) const {
    return ways[static_cast<size_t>(gpu) * ports.size() + static_cast<size_t>(port)];
  }
  void check_gpu(int host, int gpu) const {
    if (gpu < 0 || gpu >= static_cast<int>(gpus.size()))
      fail(Result::invalid_argument, "host {} has no GPU {}: it has {}", host, gpu, gpus.size());
  }
  int rail_of(int host, int port) const {
    const auto at = std::find(ports.begin(), ports.end(), port);
    if (at == ports.end())
      fail(Result::invalid_argument, "node {} of host {} is no port on the fabric", port, host);
    return static_cast<int>(at - ports.begin());
  }
};

HostPaths::Shape::Shape(const Machine& m, const Fabric& fabric) : gpus(m.all(Kind::gpu)) {
  const auto on_fabric = [&](int p) {
    const Network n = m.port(p).network;
    return m.port(p).up != Answer3::no &&
           (n == fabric.network || n == Network::unknown || fabric.network == Network::unknown);
  };
  for (const int p : m.all(Kind::port))
    if (on_fabric(p)) ports.push_back(p);
  std::map<int, int> number;
  for (size_t i = 0; i < ports.size(); ++i) {
    number[ports[i]] = static_cast<int>(i);
    const Port& p = m.port(ports[i]);
    networks.push_back(p.network == Network::unknown ? fabric.network : p.network);
    Rate r = p.gbit_per_s > 0 ? Rate{p.gbit_per_s / 8, Source::read} : default_network_rate();
    if (fabric.gbit_per_s > 0) {
      const Rate of_fabric{fabric.gbit_per_s / 8, fabric.source};
      r = p.gbit_per_s > 0 ? narrower(r, of_fabric) : of_fabric;
    }
    port_rates.push_back(r);
  }
  users.resize(ports.size());
  ways.resize(gpus.size() * ports.size());
  const auto choices = nearest_ports(m);
  for (size_t g = 0; g < gpus.size(); ++g) {
    nearest.push_back(kNone);
    for (const PortChoice& c : choices[g]) {
      const auto known = number.find(c.port);
      if (known == number.end() || c.path.path_class == PathClass::dis) continue;
      // The last link is that of the port: its rate is port_rates', whatever the path says.
      Rate r{std::numeric_limits<double>::infinity(), Source::assumed};
      for (size_t l = 0; l + 1 < c.path.links.size(); ++l)
        r = narrower(r, m.links[static_cast<size_t>(c.path.links[l])].rate);
      ways[g * ports.size() + static_cast<size_t>(known->second)] = {c.path.path_class <= PathClass::pxn, r,
                                                                     c.path};
      if (nearest[g] == kNone) {
        nearest[g] = known->second;
        ++users[static_cast<size_t>(known->second)];
      }
    }
    nvlinks.push_back(nvlinks_of(m, gpus[g]).rate);
    std::vector<Path> paths = paths_from(m, gpus[g]);
    for (const int other : gpus) inside.push_back(std::move(paths[static_cast<size_t>(other)]));
  }
}

HostPaths::HostPaths(const Cluster& c) : fabric_(c.fabric) {
  for (const auto& m : c.shapes) shapes_.emplace_back(*m, fabric_);
  for (const HostGroup& g : c.hosts) shape_of_.insert(shape_of_.end(), static_cast<size_t>(g.count), g.shape);
  hosts_per_leaf_ =
      fabric_.hosts_per_leaf > 0 ? fabric_.hosts_per_leaf : std::max(1, static_cast<int>(shape_of_.size()));
}

HostPaths::~HostPaths() = default;
HostPaths::HostPaths(HostPaths&&) noexcept = default;

Neighbourhood HostPaths::between_places(int a, int b) const {
  if (a == b) return Neighbourhood::host;
  if (a / fabric_.hosts_per_nvlink_domain == b / fabric_.hosts_per_nvlink_domain)
    return Neighbourhood::nvlink_domain;
  return a / hosts_per_leaf_ == b / hosts_per_leaf_ ? Neighbourhood::leaf : Neighbourhood::spine;
}

Neighbourhood HostPaths::neighbourhood(int from_host, int to_host) const {
  const int n = static_cast<int>(shape_of_.size());
  for (const int h : {from_host, to_host})
    if (h < 0 || h >= n) fail(Result::invalid_argument, "host {} is not in 0..{}", h, n - 1);
  return between_places(from_host, to_host);
}

HostPath HostPaths::path(const Shape& a, int from_gpu, const Shape& b, int to_gpu, Neighbourhood n) const {
  const auto from = static_cast<size_t>(from_gpu), to = static_cast<size_t>(to_gpu);
  if (n == Neighbourhood::host) {
    const Path& i = a.inside[from * a.gpus.size() + to];
    return {.path_class = i.path_class, .rate = i.rate, .rate_when_all = i.rate, .latency_us = i.latency_us};
  }
  if (n == Neighbourhood::nvlink_domain && a.nvlinks[from].gb_per_s > 0 && b.nvlinks[to].gb_per_s > 0) {
    const Rate r = narrower(a.nvlinks[from], b.nvlinks[to]);
    return {.path_class = PathClass::nvl,
            .switches = 1,
            .rate = r,
            .rate_when_all = r,
            .latency_us = 2 * nvlink_latency()};
  }
  HostPath p;
  const int q = b.nearest[to];
  if (a.nearest[from] == kNone || q == kNone) return p;
  // The port on the peer's rail, if it is near; else the nearest.
  int o = a.nearest[from];
  if (fabric_.rails && q < static_cast<int>(a.ports.size()) && a.way(from_gpu, q).near) o = q;
  const auto out = static_cast<size_t>(o), in = static_cast<size_t>(q);
  const Shape::Way &leaving = a.way(from_gpu, o), &arriving = b.way(to_gpu, q);
  p.path_class = PathClass::net;
  p.network = a.networks[out];
  p.from_port = a.ports[out];
  p.to_port = b.ports[in];
  p.same_rail = o == q;
  const bool one_switch = n != Neighbourhood::spine && (!fabric_.rails || p.same_rail);
  p.switches = one_switch ? 1 : 3;
  p.rate = narrower(narrower(leaving.rate, a.port_rates[out]), narrower(b.port_rates[in], arriving.rate));
  const double uplink = one_switch ? 1 : fabric_.oversubscription;
  const auto share = [&](const Shape& s, size_t port) {
    return Rate{s.port_rates[port].gb_per_s / std::max(1, s.users[port]) / uplink, s.port_rates[port].source};
  };
  p.rate_when_all = narrower(p.rate, narrower(share(a, out), share(b, in)));
  p.latency_us = leaving.path.latency_us + arriving.path.latency_us + p.switches * fabric_.latency_us;
  return p;
}

HostPath HostPaths::between(int from_host, int from_gpu, int to_host, int to_gpu) const {
  const Neighbourhood n = neighbourhood(from_host, to_host);
  const Shape &a = shape_of(from_host), &b = shape_of(to_host);
  a.check_gpu(from_host, from_gpu);
  b.check_gpu(to_host, to_gpu);
  return path(a, from_gpu, b, to_gpu, n);
}

const HostPaths::Shape& HostPaths::shape_of(int host) const {
  if (host < 0 || host >= static_cast<int>(shape_of_.size()))
    fail(Result::invalid_argument, "host {} is not in 0..{}", host, shape_of_.size() - 1);
  return shapes_[static_cast<size_t>(shape_of_[static_cast<size_t>(host)])];
}

const Path& HostPaths::inside(int host, int from_gpu, int to_gpu) const {
  const Shape& s = shape_of(host);
  s.check_gpu(host, from_gpu);
  s.check_gpu(host, to_gpu);
  return s.inside[static_cast<size_t>(from_gpu) * s.gpus.size() + static_cast<size_t>(to_gpu)];
}

const Path& HostPaths::to_port(int host, int gpu, int port) const {
  const Shape& s = shape_of(host);
  s.check_gpu(host, gpu);
  return s.way(gpu, s.rail_of(host, port)).path;
}

const std::vector<int>& HostPaths::ports(int host) const { return shape_of(host).ports; }

Rate HostPaths::port_rate(int host, int port) const {
  const Shape& s = shape_of(host);
  return s.port_rates[static_cast<size_t>(s.rail_of(host, port))];
}

namespace {

using ShapePair = std::pair<int, int>;
using Counts = std::map<ShapePair, uint64_t>;

// Ordered pairs of hosts in one cell, themselves included, by their shapes; cells are hosts in a row.
template <class SameCell>
Counts pairs_in_cells(const std::vector<int>& shapes, SameCell same_cell) {
  Counts pairs;
  std::map<int, uint64_t> in_cell;
  for (size_t host = 0; host < shapes.size(); ++host) {
    ++in_cell[shapes[host]];
    if (host + 1 < shapes.size() && same_cell(static_cast<int>(host), static_cast<int>(host) + 1)) continue;
    for (const auto& [a, hosts_a] : in_cell)
      for (const auto& [b, hosts_b] : in_cell) pairs[{a, b}] += hosts_a * hosts_b;
    in_cell.clear();
  }
  return pairs;
}

uint64_t count_of(const Counts& counts, const ShapePair& shapes) {
  const auto at = counts.find(shapes);
  return at == counts.end() ? 0 : at->second;
}

}  // namespace

std::vector<HostPathKind> HostPaths::peers() const {
  const auto same_domain = [&](int a, int b) {
    return a / fabric_.hosts_per_nvlink_domain == b / fabric_.hosts_per_nvlink_domain;
  };
  const auto same_leaf = [&](int a, int b) { return a / hosts_per_leaf_ == b / hosts_per_leaf_; };
  const Counts all = pairs_in_cells(shape_of_, [](int, int) { return true; });
  const Counts domains = pairs_in_cells(shape_of_, same_domain),
               leaves = pairs_in_cells(shape_of_, same_leaf);
  const Counts both =
      pairs_in_cells(shape_of_, [&](int a, int b) { return same_domain(a, b) && same_leaf(a, b); });
  const Counts selves = pairs_in_cells(shape_of_, [](int, int) { return false; });

  std::vector<HostPathKind> kinds;
  for (const auto& entry : all) {
    const ShapePair& shapes = entry.first;
    const uint64_t pairs = entry.second;
    const Shape &a = shapes_[static_cast<size_t>(shapes.first)],
                &b = shapes_[static_cast<size_t>(shapes.second)];
    const int gpus = static_cast<int>(std::min(a.gpus.size(), b.gpus.size()));
    const uint64_t domain = count_of(domains, shapes),
                   leaf = count_of(leaves, shapes) - count_of(both, shapes);
    const auto add = [&](Neighbourhood n, uint64_t count) {
      for (int g = 0; count > 0 && g < gpus; ++g)
        kinds.push_back({shapes.first, shapes.second, n, g, count, path(a, g, b, g, n)});
    };
    add(Neighbourhood::nvlink_domain, domain - count_of(selves, shapes));
    add(Neighbourhood::leaf, leaf);
    add(Neighbourhood::spine, pairs - domain - leaf);
  }
  return kinds;
}

HostPath path_between(const Cluster& c, int from_host, int from_gpu, int to_host, int to_gpu) {
  return HostPaths(c).between(from_host, from_gpu, to_host, to_gpu);
}

}  // namespace muster::topology
