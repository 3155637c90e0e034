#include "topology/machine.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"

namespace muster::topology {

std::string_view name_of(Source s) {
  switch (s) {
    case Source::measured: return "measured";
    case Source::read: return "read";
    case Source::table: return "table";
    case Source::assumed: return "assumed";
  }
  return "?";
}

std::string_view name_of(Severity s) {
  switch (s) {
    case Severity::note: return "note";
    case Severity::warning: return "warning";
    case Severity::error: return "error";
  }
  return "?";
}

std::string_view name_of(Kind k) {
  switch (k) {
    case Kind::numa: return "NUMA node";
    case Kind::host_bridge: return "host bridge";
    case Kind::pci_switch: return "PCI switch";
    case Kind::gpu: return "GPU";
    case Kind::nvswitch: return "NVSwitch";
    case Kind::nic: return "NIC";
    case Kind::port: return "port";
  }
  return "?";
}

std::string_view name_of(LinkKind k) {
  switch (k) {
    case LinkKind::nvlink: return "NVLink";
    case LinkKind::xgmi: return "xGMI";
    case LinkKind::c2c: return "C2C";
    case LinkKind::pcie: return "PCIe";
    case LinkKind::cpu: return "CPU interconnect";
    case LinkKind::network: return "network";
  }
  return "?";
}

std::string_view name_of(Network n) {
  switch (n) {
    case Network::unknown: return "unknown";
    case Network::infiniband: return "InfiniBand";
    case Network::roce: return "RoCE";
    case Network::ethernet: return "Ethernet";
    case Network::efa: return "EFA";
  }
  return "?";
}

namespace {
constexpr int kMostSuffix = 1'000'000'000;

// A GPU may have NVLink or C2C to the NUMA node that it hangs under, beside its PCI link.
bool leads_up(LinkKind k) { return k == LinkKind::pcie || k == LinkKind::network; }

}  // namespace

int Machine::add(Node node) {
  const std::string base = node.name.empty() ? std::string(topology::name_of(node.kind)) : node.name;
  node.name = base;
  if (find(base) != kNone) {
    int last = 1;  // one look at all: many may have one name
    for (const Node& n : nodes)
      if (n.name.size() > base.size() && n.name.starts_with(base) && n.name[base.size()] == '#') {
        int number = 0;
        std::from_chars(n.name.data() + base.size() + 1, n.name.data() + n.name.size(), number);
        last = std::max(last, std::min(number, kMostSuffix));
      }
    node.name = fmt::format("{}#{}", base, last + 1);
  }
  nodes.push_back(std::move(node));
  return static_cast<int>(nodes.size()) - 1;
}

int Machine::link(Link l) {
  links.push_back(l);
  return static_cast<int>(links.size()) - 1;
}

int Machine::up_link(int node) const {
  const int parent = (*this)[node].parent;
  if (parent == kNone) return kNone;
  for (size_t i = 0; i < links.size(); ++i)
    if (leads_up(links[i].kind) && ((links[i].a == node && links[i].b == parent) || (links[i].b == node && links[i].a == parent))) return static_cast<int>(i);
  return kNone;
}

std::vector<int> Machine::all(Kind k) const {
  std::vector<int> r;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].kind == k) r.push_back(static_cast<int>(i));
  return r;
}

int Machine::find(std::string_view wanted) const {
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].name == wanted) return static_cast<int>(i);
  return kNone;
}

int Machine::find(const PciAddress& address) const {
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].pci && nodes[i].pci->address == address) return static_cast<int>(i);
  return kNone;
}

int Machine::numa_of(int node) const {
  while (node != kNone && (*this)[node].kind != Kind::numa) node = (*this)[node].parent;
  return node;
}

int Machine::gpu_with_index(int index) const {
  for (const int g : all(Kind::gpu))
    if (gpu(g).index == index) return g;
  return kNone;
}

namespace {


Link link_to_parent(const Machine& m, int node) {
  const Node& n = m[node];
  Link l{node, n.parent, LinkKind::pcie, 0, {}, pcie_latency()};
  if (n.kind == Kind::port) {
    const Port& p = m.port(node);
    l.kind = LinkKind::network;
    l.count = 1;
    l.latency_us = p.latency_us;
    l.rate = p.gbit_per_s > 0 ? Rate{p.gbit_per_s / 8, Source::read} : default_network_rate();
    return l;
  }
  const double gt = n.pci ? n.pci->gigatransfers : 0;
  const int lanes = n.pci ? n.pci->lanes : 0;
  l.count = lanes;
  l.rate = pcie_rate(gt, lanes);
  // A host bridge is part of the CPU, and a device that sits there has no PCI link that could be narrow.
  if (n.kind == Kind::host_bridge) {
    l.latency_us = 0;
    l.rate = {0, Source::assumed};
    double widest = 0;  // as wide as what hangs under it: what limits is there
    for (size_t c = 0; c < m.nodes.size(); ++c)
      if (m.nodes[c].parent == node) widest += m.nodes[c].pci ? pcie_rate(m.nodes[c].pci->gigatransfers, m.nodes[c].pci->lanes).gb_per_s : 0;
    l.rate.gb_per_s = std::max(widest, pcie_rate(0, 0).gb_per_s);
  }
  return l;
}

}  // namespace

void complete(Machine& m) {
  std::vector<int> numas = m.all(Kind::numa);
  const bool roots_without = std::any_of(m.nodes.begin(), m.nodes.end(), [](const Node& n) {
    return n.parent == kNone && n.kind != Kind::numa && n.kind != Kind::nvswitch;
  });
  if (numas.empty() && roots_without) {
    Node n{.kind = Kind::numa, .name = "NUMA0", .detail = Numa{}, .made_up = true};
    numas.push_back(m.add(std::move(n)));
  }
  for (Node& n : m.nodes)
    if (n.parent == kNone && n.kind != Kind::numa && n.kind != Kind::nvswitch) n.parent = numas[0];

  if (numas.size() > kMostNumas)
    fail(Result::invalid_argument, "{} NUMA nodes in one host: more than {} are taken for a mistake", numas.size(), kMostNumas);
  std::set<std::pair<int, int>> joined, joined_up;
  for (const Link& l : m.links) (leads_up(l.kind) ? joined_up : joined).insert(std::minmax(l.a, l.b));

  for (size_t i = 0; i < numas.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      if (joined.contains({numas[j], numas[i]})) continue;
      const Numa &a = m.numa(numas[j]), &b = m.numa(numas[i]);
      const bool together = a.package != kNone && a.package == b.package;
      const Rate rate = together ? package_rate(a.arch, a.vendor, a.family, a.model)
                                 : cpu_interconnect_rate(a.arch, a.vendor, a.family, a.model);
      m.link({numas[j], numas[i], LinkKind::cpu, 1, rate, cpu_interconnect_latency()});
    }
  for (int i = 0; i < static_cast<int>(m.nodes.size()); ++i)
    if (m[i].parent != kNone && !joined_up.contains(std::minmax(i, m[i].parent))) m.link(link_to_parent(m, i));
}

void validate(const Machine& m) {
  const int n = static_cast<int>(m.nodes.size());
  const auto wrong = [](std::string_view what) { fail(Result::internal_error, "a topology was built wrongly: {}", what); };
  for (int i = 0; i < n; ++i) {
    const Node& node = m[i];
    if (node.parent < kNone || node.parent >= n || node.parent == i) wrong("a parent that isn't there");
    int steps = 0;
    for (int up = node.parent; up != kNone; up = m[up].parent)
      if (++steps > n) wrong("a node above itself");
    const bool fits = node.kind == Kind::numa ? std::holds_alternative<Numa>(node.detail)
                      : node.kind == Kind::gpu ? std::holds_alternative<Gpu>(node.detail)
                      : node.kind == Kind::nic ? std::holds_alternative<Nic>(node.detail)
                      : node.kind == Kind::port ? std::holds_alternative<Port>(node.detail) && node.parent != kNone && m[node.parent].kind == Kind::nic
                      : node.kind == Kind::nvswitch ? std::holds_alternative<NvSwitch>(node.detail)
                                                    : true;
    if (!fits) wrong(fmt::format("{} '{}' without its details", name_of(node.kind), node.name));
  }
  for (const Link& l : m.links)
    if (l.a < 0 || l.b < 0 || l.a >= n || l.b >= n || l.a == l.b) wrong("a link to nowhere");
}

}  // namespace muster::topology
