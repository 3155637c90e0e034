#include <algorithm>
#include <set>
#include <string>
#include <unordered_set>

#include "base/text.h"
#include "topology/nccl_host.h"
#include "topology/nccl_text.h"
#include "topology/network_names.h"

namespace muster::topology {

using pugi::xml_node;

// As the driver counts: in the order of bus ids.
void HostReader::number_gpus() {
  std::set<int> taken;
  for (const int g : m.all(Kind::gpu))
    if (m.gpu(g).index != kNone && !taken.insert(m.gpu(g).index).second)
      note(Severity::warning, "duplicate-gpu-number", "", at_[static_cast<size_t>(g)],
           "Give each GPU its own dev.", "dev=\"{}\" is there twice in one host", m.gpu(g).index);
  std::stable_sort(bare_gpus_.begin(), bare_gpus_.end(),
                   [&](int a, int b) { return m[a].pci->address < m[b].pci->address; });
  int next = 0;
  for (const int g : bare_gpus_) {
    while (taken.contains(next)) ++next;
    std::get<Gpu>(m[g].detail).index = next++;
    if (is(at_[static_cast<size_t>(g)], "pci"))
      note(Severity::note, "gpu-details-missing", "", at_[static_cast<size_t>(g)],
           "NCCL asks the driver when it loads the file. For planning add <gpu dev= sm=> and its <nvlink>s.",
           "{} is a GPU without <gpu>: its NVLinks aren't known", m[g].pci->address.text());
  }
}

void HostReader::give_ports() {
  std::stable_sort(bare_nics_.begin(), bare_nics_.end(),
                   [&](int a, int b) { return m[a].pci->address < m[b].pci->address; });
  for (const int nic : bare_nics_) {
    const xml_node at = at_[static_cast<size_t>(nic)];
    const Pci pci = *m[nic].pci;
    const int port = new_node(Kind::port, nic, std::nullopt,
                              Port{.network = network_of(pci.class_code, pci.vendor, "")}, at);
    m[port].made_up = true;
    note(Severity::note, "nic-details-missing", "", at,
         "NCCL asks the network when it loads the file. For planning add <nic><net name= speed=></nic>.",
         "{} is a NIC without <nic>: one port of 100 Gbit/s is assumed", pci.address.text());
  }
}

void HostReader::join_gpus() {
  constexpr uint64_t kGpuClass = 0x03, kSwitchClass = 0x068000, kCpuClass = 0x068001;
  std::map<std::pair<int, int>, SaidLink> pairs;  // ordered: what the first says of the second
  std::vector<std::pair<int, int>> order;
  std::map<int, int> to_switch, to_cpu;
  std::set<PciAddress> switches;
  for (const SaidLink& l : said_) {
    const auto address = parse_bus_id(l.target);
    const auto found = address ? gpus_.find(*address) : gpus_.end();
    if (found != gpus_.end() && m[found->second].pci->address == m[l.gpu].pci->address) {
      note(Severity::warning, "nvlink-to-itself", "", l.at,
           "The file was written where the GPU couldn't see the other end; take it from a machine that does.",
           "target=\"{}\" is the GPU itself: its {} links are left out", printable(l.target, 60), l.count);
    } else if (found != gpus_.end()) {
      const auto [at, first] = pairs.try_emplace({l.gpu, found->second}, l);
      if (!first) at->second.count += l.count;
      if (first && !pairs.contains({found->second, l.gpu})) order.emplace_back(l.gpu, found->second);
    } else if (l.kind == LinkKind::nvlink && l.target_class == kCpuClass) {
      to_cpu[l.gpu] += l.count;
    } else if (l.kind == LinkKind::nvlink &&
               (!l.target_class || *l.target_class == kSwitchClass || is_unreadable(l.target))) {
      if (!l.target_class)
        note(Severity::note, "nvlink-class-missing", "", l.at, "Add tclass (0x068000 for a NVSwitch).",
             "target=\"{}\" is no GPU of the file and has no tclass: taken for a NVSwitch, as NCCL does",
             printable(l.target, 60));
      to_switch[l.gpu] += l.count;
      if (address && !is_unreadable(l.target)) switches.insert(*address);
    } else {
      note(Severity::warning, "nvlink-target-missing", "", l.at, "Add the GPU, or leave the links out.",
           "target=\"{}\" is {}: its {} links are left out", printable(l.target, 60),
           l.target_class && *l.target_class >> 16 == kGpuClass ? "a GPU that the file doesn't have"
                                                                : "no device of the file",
           l.count);
    }
  }
  const auto rate_of = [&](int gpu, LinkKind kind) {
    return kind == LinkKind::xgmi ? xgmi_rate(m.gpu(gpu).gcn) : nvlink_rate(m.gpu(gpu).sm);
  };
  const auto join = [&](int a, int b, LinkKind kind, int count, Rate each) {
    m.link({a, b, kind, count, {each.gb_per_s * count, each.source}, nvlink_latency()});
  };
  for (const auto& [a, b] : order) {
    const SaidLink& there = pairs.at({a, b});
    const auto back = pairs.find({b, a});
    int count = there.count;
    if (back == pairs.end()) {
      note(Severity::warning, "nvlink-one-sided", "", there.at, "List the links at both GPUs.",
           "target=\"{}\" doesn't list these {} links", printable(there.target, 60), count);
    } else if (back->second.count != count) {
      note(Severity::warning, "nvlink-counts-disagree", "", there.at,
           "Both GPUs should list the same number.",
           "{} links to \"{}\", which lists {}: the smaller number is used", count,
           printable(there.target, 60), back->second.count);
      count = std::min(count, back->second.count);
    }
    const Rate one = rate_of(a, there.kind), other = rate_of(b, there.kind);
    join(a, b, there.kind, count, one.gb_per_s <= other.gb_per_s ? one : other);
  }
  for (const auto& [gpu, count] : to_cpu)
    join(gpu, m.numa_of(gpu), LinkKind::nvlink, count, rate_of(gpu, LinkKind::nvlink));
  if (to_switch.empty()) return;
  const int node =
      new_node(Kind::nvswitch, kNone, std::nullopt, NvSwitch{std::max(1, static_cast<int>(switches.size()))},
               at_[static_cast<size_t>(to_switch.begin()->first)]);
  for (const auto& [gpu, count] : to_switch)
    join(gpu, node, LinkKind::nvlink, count, nvswitch_link_rate(m.gpu(gpu).sm));
}

void HostReader::join_switches() {
  std::set<std::pair<int, int>> joined;
  for (const SaidPciLink& l : said_pci_) {
    const auto address = parse_bus_id(l.target);
    const auto found = address ? addresses_.find(*address) : addresses_.end();
    const int other = found == addresses_.end() ? kNone : found->second;
    if (other == kNone || other == l.from) {
      note(Severity::warning, "pcilink-target-missing", "", l.at, "",
           "target=\"{}\" is no other device of the file: the link is left out", printable(l.target, 60));
    } else if (m[l.from].parent != other && m[other].parent != l.from &&
               joined.insert(std::minmax(l.from, other)).second) {
      const Rate one = pcie_rate(m[l.from].pci->gigatransfers, m[l.from].pci->lanes),
                 two = pcie_rate(m[other].pci->gigatransfers, m[other].pci->lanes);
      m.link({l.from, other, LinkKind::pcie, 0, one.gb_per_s <= two.gb_per_s ? one : two, pcie_latency()});
    }
  }
}

// GB/s that the most demanding device at or below each node could use; nodes come after their parents.
std::vector<double> HostReader::needs() const {
  std::vector<double> r(m.nodes.size(), 0);
  for (int i = static_cast<int>(m.nodes.size()) - 1; i >= 0; --i) {
    double& own = r[static_cast<size_t>(i)];
    if (m[i].kind == Kind::gpu) own = pcie_rate(0, 0).gb_per_s;
    if (m[i].kind == Kind::port)
      own = m.port(i).gbit_per_s > 0 ? m.port(i).gbit_per_s / 8 : default_network_rate().gb_per_s;
    if (m[i].parent != kNone)
      r[static_cast<size_t>(m[i].parent)] = std::max(r[static_cast<size_t>(m[i].parent)], own);
  }
  return r;
}

// Virtual bridges say 2.5 GT/s x1 while what is below them is fast. A slow NIC may well have such a link.
void HostReader::mark_implausible() {
  const std::vector<double> need = needs();
  for (int i = 0; i < static_cast<int>(m.nodes.size()); ++i) {
    if (!m[i].pci || m[i].parent == kNone || !is_implausible(m[i].pci->gigatransfers, m[i].pci->lanes))
      continue;
    const double said = pcie_rate(m[i].pci->gigatransfers, m[i].pci->lanes).gb_per_s;
    if (need[static_cast<size_t>(i)] <= said) continue;
    note(Severity::warning, "implausible-pci-link", "", at_[static_cast<size_t>(i)],
         "Virtual bridges say this. Give NCCL a topology file with the real speed; by this one NCCL plans "
         "with it.",
         "{} says {:g} GT/s x{}, {:.1f} GB/s, which is too little for what it carries: not used, {:g} GB/s "
         "are assumed",
         m[i].pci->address.text(), m[i].pci->gigatransfers, m[i].pci->lanes, said, pcie_rate(0, 0).gb_per_s);
    m.link({i, m[i].parent, LinkKind::pcie, m[i].pci->lanes, pcie_rate(0, 0), pcie_latency()});
  }
}

void HostReader::name_nodes() {
  std::unordered_set<std::string> taken;
  std::map<std::string, int> next;
  const auto name = [&](int i, std::string base) {
    std::string n = base;
    if (!taken.insert(n).second) {
      int& number = next.try_emplace(base, 2).first->second;
      do n = fmt::format("{}#{}", base, number++);
      while (!taken.insert(n).second);
    }
    m[i].name = std::move(n);
  };
  int made_up = 0;
  for (int i = 0; i < static_cast<int>(m.nodes.size()); ++i) {
    const Node& n = m[i];
    switch (n.kind) {
      case Kind::numa:
        name(i, m.numa(i).os_index >= 0 ? fmt::format("NUMA{}", m.numa(i).os_index) : "NUMA");
        break;
      case Kind::gpu:
        name(i, fmt::format("GPU{}", m.gpu(i).index));
        break;
      case Kind::port:
        name(i, n.made_up ? fmt::format("NIC{}", made_up++) : m.port(i).device);
        break;
      case Kind::nvswitch:
        name(i, "NVSwitch");
        break;
      case Kind::nic: {
        const bool has_port =
            i + 1 < static_cast<int>(m.nodes.size()) && m[i + 1].kind == Kind::port && m[i + 1].parent == i;
        name(i, n.pci      ? n.pci->address.text()
                : has_port ? fmt::format("card of {}", m.port(i + 1).device)
                           : "card");
        break;
      }
      default:
        name(i, n.pci->address.text());
    }
  }
}

// NUMA nodes, GPUs and ports stand in the order of their numbers, whatever that of the file.
void HostReader::sort_by_number() {
  std::vector<int> place(m.nodes.size());  // new, of each node
  for (size_t i = 0; i < place.size(); ++i) place[i] = static_cast<int>(i);
  const auto sort = [&](Kind kind, auto number) {
    const std::vector<int> slots = m.all(kind);
    std::vector<int> sorted = slots;
    std::stable_sort(sorted.begin(), sorted.end(), [&](int a, int b) {
      return static_cast<unsigned>(number(a)) < static_cast<unsigned>(number(b));
    });  // kNone last
    for (size_t i = 0; i < slots.size(); ++i) place[static_cast<size_t>(sorted[i])] = slots[i];
  };
  sort(Kind::numa, [&](int i) { return m.numa(i).os_index; });
  sort(Kind::gpu, [&](int i) { return m.gpu(i).index; });
  sort(Kind::port, [&](int i) { return m.port(i).index; });
  std::deque<Node> nodes(m.nodes.size());
  for (size_t i = 0; i < place.size(); ++i) {
    Node& n = nodes[static_cast<size_t>(place[i])];
    n = std::move(m.nodes[i]);
    if (n.parent != kNone) n.parent = place[static_cast<size_t>(n.parent)];
  }
  m.nodes = std::move(nodes);
  for (Link& l : m.links) {
    l.a = place[static_cast<size_t>(l.a)];
    l.b = place[static_cast<size_t>(l.b)];
  }
}

Machine HostReader::finish() {
  number_gpus();
  give_ports();
  join_gpus();
  join_switches();
  name_nodes();
  mark_implausible();
  sort_by_number();
  complete(m);
  validate(m);
  m.findings = notes_.take();
  return std::move(m);
}

}  // namespace muster::topology
