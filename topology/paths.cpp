#include "topology/paths.h"

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace muster::topology {
namespace {

struct ClassText {
  PathClass path_class;
  std::string_view name, explanation;
};
constexpr std::array<ClassText, 13> kClasses = {{
    {PathClass::loc, "LOC", "the device itself"},
    {PathClass::nvl, "NVL", "NVLink (AMD: xGMI), directly or through NVSwitch"},
    {PathClass::nvb, "NVB", "NVLink by way of one other GPU"},
    {PathClass::c2c, "C2C", "a GPU and the CPU on its module"},
    {PathClass::pix, "PIX", "one PCIe switch"},
    {PathClass::pxb, "PXB", "several PCIe switches, not the CPU"},
    {PathClass::p2c, "P2C", "C2C to the CPU, then PCIe to the NIC"},
    {PathClass::pxn, "PXN", "NVLink to another GPU that is near the NIC"},
    {PathClass::phb, "PHB", "through the CPU's PCIe host bridge"},
    {PathClass::node, "NODE", "between PCIe host bridges of one NUMA node"},
    {PathClass::sys, "SYS", "between NUMA nodes, through the CPU interconnect"},
    {PathClass::net, "NET", "the network"},
    {PathClass::dis, "DIS", "nothing joins them"},
}};

enum class Arrival : uint8_t { other, nvlink };  // how a GPU was reached: it passes on only what came by NVLink

struct Edge {
  int to, link;
};

// The class that a link alone gives to the paths over it. Where a NUMA node meets a host bridge it depends on whether the
// path came from another one (`before`).
PathClass class_of(const Machine& m, const Link& l, int from, int to, int before) {
  switch (l.kind) {
    case LinkKind::nvlink:
    case LinkKind::xgmi: return PathClass::nvl;
    case LinkKind::c2c: return PathClass::c2c;
    case LinkKind::cpu: return PathClass::sys;
    case LinkKind::network: return PathClass::loc;  // of a card to its own port
    case LinkKind::pcie: break;
  }
  const Kind a = m[from].kind, b = m[to].kind;
  const auto is = [&](Kind x, Kind y) { return (a == x && b == y) || (a == y && b == x); };
  if (is(Kind::host_bridge, Kind::numa)) {
    return a == Kind::numa && before != kNone && m[before].kind == Kind::host_bridge ? PathClass::node : PathClass::phb;
  }
  if (a == Kind::numa || b == Kind::numa || a == Kind::host_bridge || b == Kind::host_bridge) return PathClass::phb;
  if (a == Kind::pci_switch && b == Kind::pci_switch) return PathClass::pxb;
  return PathClass::pix;
}

struct Label {
  double width = -1;  // GB/s of the narrowest link; < 0: not reached
  int hops = 0;
  int before_node = kNone, before_link = kNone;
  Arrival before_arrival = Arrival::other;
};

// Widest paths that use no link of a class above `most`; labels of node and arrival.
std::vector<std::array<Label, 2>> widest(const Machine& m, const std::vector<std::vector<Edge>>& edges, int from, PathClass most) {
  std::vector<std::array<Label, 2>> labels(m.nodes.size());
  struct Entry {
    double width;
    int hops, node;
    Arrival arrival;
    bool operator<(const Entry& o) const { return std::tie(width, o.hops, o.node) < std::tie(o.width, hops, node); }
  };
  std::priority_queue<Entry> queue;
  const auto start = Label{std::numeric_limits<double>::infinity(), 0, kNone, kNone, Arrival::other};
  labels[static_cast<size_t>(from)][0] = start;
  queue.push({start.width, 0, from, Arrival::other});
  while (!queue.empty()) {
    const Entry e = queue.top();
    queue.pop();
    const Label at = labels[static_cast<size_t>(e.node)][static_cast<size_t>(e.arrival)];
    if (e.width < at.width || (e.width == at.width && e.hops > at.hops)) continue;
    const Kind kind = m[e.node].kind;
    if (e.node != from) {
      if (kind == Kind::port) continue;
      // By way of one GPU, and only over links that join it with the first: it was reached by one NVLink from there.
      if (kind == Kind::gpu && (e.arrival != Arrival::nvlink || at.before_node != from || m[from].kind != Kind::gpu)) continue;
    }
    for (const Edge& next : edges[static_cast<size_t>(e.node)]) {
      const Link& l = m.links[static_cast<size_t>(next.link)];
      const bool nv = is_nvlink_class(l.kind);
      if (class_of(m, l, e.node, next.to, at.before_node) > most) continue;
      if (kind == Kind::gpu && e.node != from && (!nv || most < PathClass::nvb || m[next.to].kind != Kind::gpu)) continue;
      // Behind a card are its own ports only, and a port's way out is its card.
      if (kind == Kind::nic && e.node != from && m[next.to].kind != Kind::port && m[from].kind != Kind::port) continue;
      const Arrival arrival = nv ? Arrival::nvlink : Arrival::other;
      Label& there = labels[static_cast<size_t>(next.to)][static_cast<size_t>(arrival)];
      const double width = std::min(at.width, l.rate.gb_per_s);
      const int hops = at.hops + 1;
      if (width < there.width || (width == there.width && hops >= there.hops)) continue;
      there = {width, hops, e.node, next.link, e.arrival};
      queue.push({width, hops, next.to, arrival});
    }
  }
  return labels;
}

Path trace(const Machine& m, const std::vector<std::array<Label, 2>>& labels, int to, Arrival arrival, PathClass path_class) {
  Path p;
  p.path_class = path_class;
  p.rate = {std::numeric_limits<double>::infinity(), Source::measured};
  int node = to;
  for (;;) {
    p.nodes.push_back(node);
    const Label& l = labels[static_cast<size_t>(node)][static_cast<size_t>(arrival)];
    if (l.before_link == kNone) break;
    const Link& link = m.links[static_cast<size_t>(l.before_link)];
    p.links.push_back(l.before_link);
    p.latency_us += link.latency_us;
    if (link.rate.gb_per_s <= p.rate.gb_per_s) {
      p.rate = link.rate;
      p.narrowest = l.before_link;
    }
    node = l.before_node;
    arrival = l.before_arrival;
  }
  std::reverse(p.nodes.begin(), p.nodes.end());
  std::reverse(p.links.begin(), p.links.end());
  return p;
}

std::vector<std::vector<Edge>> adjacency(const Machine& m) {
  std::vector<std::vector<Edge>> edges(m.nodes.size());
  for (size_t i = 0; i < m.links.size(); ++i) {
    const Link& l = m.links[i];
    edges[static_cast<size_t>(l.a)].push_back({l.b, static_cast<int>(i)});
    edges[static_cast<size_t>(l.b)].push_back({l.a, static_cast<int>(i)});
  }
  return edges;
}

// GPU to CPU by C2C, then PCIe within that NUMA node.
bool is_p2c(const Machine& m, const Path& p) {
  if (p.path_class != PathClass::phb && p.path_class != PathClass::node) return false;
  const auto c2c = [&](int link) { return m.links[static_cast<size_t>(link)].kind == LinkKind::c2c; };
  return p.links.size() > 1 && (c2c(p.links.front()) || c2c(p.links.back()));
}

}  // namespace

bool closer(const Path& a, const Path& b) {
  if (a.path_class != b.path_class) return a.path_class < b.path_class;
  if (a.rate.gb_per_s != b.rate.gb_per_s) return a.rate.gb_per_s > b.rate.gb_per_s;
  return a.links.size() < b.links.size();
}

std::string_view name_of(PathClass c) { return kClasses[static_cast<size_t>(c)].name; }
std::string_view explanation_of(PathClass c) { return kClasses[static_cast<size_t>(c)].explanation; }

std::optional<PathClass> parse_path_class(std::string_view name) {
  for (const ClassText& c : kClasses)
    if (c.name == name) return c.path_class;
  if (name == "SOC") return PathClass::sys;
  return std::nullopt;
}

std::string_view name_of(LinkClass c) {
  switch (c) {
    case LinkClass::local: return "local";
    case LinkClass::nvlink: return "NVLink";
    case LinkClass::pcie: return "PCIe";
    case LinkClass::cpu_interconnect: return "CPU interconnect";
    case LinkClass::infiniband: return "InfiniBand";
    case LinkClass::roce: return "RoCE";
    case LinkClass::ethernet: return "Ethernet";
    case LinkClass::none: return "none";
  }
  return "?";
}

LinkClass plain(PathClass c, Network n) {
  switch (c) {
    case PathClass::loc: return LinkClass::local;
    case PathClass::nvl:
    case PathClass::nvb:
    case PathClass::c2c: return LinkClass::nvlink;
    case PathClass::pix:
    case PathClass::pxb:
    case PathClass::p2c:
    case PathClass::pxn:
    case PathClass::phb:
    case PathClass::node: return LinkClass::pcie;
    case PathClass::sys: return LinkClass::cpu_interconnect;
    case PathClass::net:
      return n == Network::infiniband ? LinkClass::infiniband : n == Network::roce ? LinkClass::roce : LinkClass::ethernet;
    case PathClass::dis: return LinkClass::none;
  }
  return LinkClass::none;
}

std::vector<Path> paths_from(const Machine& m, int from) {
  const auto edges = adjacency(m);
  std::vector<Path> paths(m.nodes.size());
  size_t open = m.nodes.size();
  // Class by class: what a closer one reaches is not looked for in the next.
  for (const PathClass most : {PathClass::loc, PathClass::nvl, PathClass::nvb, PathClass::c2c, PathClass::pix, PathClass::pxb, PathClass::phb,
                               PathClass::node, PathClass::sys}) {
    if (open == 0) break;
    const auto labels = widest(m, edges, from, most);
    for (size_t i = 0; i < paths.size(); ++i) {
      if (paths[i].path_class != PathClass::dis) continue;
      const auto& [other, nvlink] = labels[i];
      if (other.width < 0 && nvlink.width < 0) continue;
      const bool by_nvlink = nvlink.width > other.width || (nvlink.width == other.width && nvlink.hops < other.hops);
      const int to = static_cast<int>(i);
      Path p = trace(m, labels, to, by_nvlink ? Arrival::nvlink : Arrival::other, most);
      if (to == from) {
        p.path_class = PathClass::loc;
        p.rate = {0, Source::assumed};  // nothing is in between
      }
      if (is_p2c(m, p)) p.path_class = PathClass::p2c;
      paths[i] = std::move(p);
      --open;
    }
  }
  return paths;
}

NvlinkTotal nvlinks_of(const Machine& m, int gpu) {
  NvlinkTotal t{0, {0, Source::measured}};
  for (const Link& l : m.links)
    if (is_nvlink_class(l.kind) && (l.a == gpu || l.b == gpu)) {
      t.links += l.count;
      t.rate.gb_per_s += l.rate.gb_per_s;
      t.rate.source = std::max(t.rate.source, l.rate.source);
    }
  if (t.links == 0) t.rate.source = Source::assumed;
  return t;
}

}  // namespace muster::topology
