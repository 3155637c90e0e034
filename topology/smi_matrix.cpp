#include "topology/smi_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "base/error.h"

namespace muster::topology {
namespace {

// Sets that are joined, each named by its first member.
class Sets {
 public:
  explicit Sets(size_t n) : up_(n) { std::iota(up_.begin(), up_.end(), size_t{0}); }
  size_t of(size_t i) const {
    while (up_[i] != i) i = up_[i];
    return i;
  }
  void join(size_t a, size_t b) {
    a = of(a);
    b = of(b);
    up_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<size_t> up_;
};

constexpr std::array<PathClass, 4> kLevels = {PathClass::pix, PathClass::pxb, PathClass::phb,
                                              PathClass::node};

// Builds a machine of a table. PCI devices are grouped level by level: what reaches each other by PIX, or by
// something that does, is below one switch; so with PXB, PHB and NODE. Where the table isn't such a hierarchy
// the closer class wins, which the comparison at the end finds.
class Builder {
 public:
  explicit Builder(const SmiTable& table)
      : t_(table),
        n_(table.size()),
        pairs_(n_ * n_),
        sets_(kLevels.size(), Sets(n_)),
        numas_(n_),
        numa_node_(n_, kNone),
        node_(n_, kNone) {}

  Machine build() {
    merge_halves();
    for (size_t level = 0; level < kLevels.size(); ++level)
      for (size_t i = 0; i < n_; ++i)
        for (size_t j = 0; j < i; ++j)
          if (const SmiCell& c = pair(i, j);
              c.known() && c.path_class != PathClass::nvl && c.path_class <= kLevels[level])
            sets_[level].join(i, j);
    group_by_affinity();
    add_numa_nodes();
    add_pci();
    add_nvlinks();
    add_c2c();
    complete(m_);
    validate(m_);
    compare();
    note_assumptions();
    m_.findings = std::move(t_.findings);
    return std::move(m_);
  }

 private:
  static std::string where(const SmiCell& c) { return fmt::format("line {}, column {}", c.line, c.column); }
  const std::string& label(size_t i) const { return t_.devices[i].label; }
  // What both halves of the table say together.
  SmiCell& pair(size_t a, size_t b) { return pairs_[std::max(a, b) * n_ + std::min(a, b)]; }

  void merge_halves() {
    for (size_t i = 0; i < n_; ++i)
      for (size_t j = 0; j < i; ++j) {
        const SmiCell &a = t_.cell(i, j), &b = t_.cell(j, i);
        SmiCell& both = pair(i, j);
        both = a.known() ? a : b;
        if (!a.known() || !b.known() || a.same(b)) continue;
        // A link that one end doesn't count carries nothing.
        const bool take_b =
            a.path_class != b.path_class ? b.path_class < a.path_class : b.nvlinks < a.nvlinks;
        if (take_b) both = b;
        t_.found({Severity::warning, "smi-contradiction", where(a),
                  fmt::format("{} reaches {} by {} here, and by {} at {}; {} is taken", label(i), label(j),
                              a.text(), b.text(), where(b), both.text()),
                  "print the table again; if it stays so, report it to the driver's vendor"});
      }
  }

  // GPUs that are near to the same CPUs and memory are at one NUMA node, unless the table says SYS. What is
  // said to be near to nothing, and not SYS to each other, is put together as well.
  std::string affinity(size_t i) const {
    const SmiDevice& d = t_.devices[i];
    if (!d.numas.empty()) return fmt::format("NUMA {}", fmt::join(d.numas, ","));
    if (!d.cpus.empty()) return fmt::format("CPU {}", fmt::join(d.cpus, ","));
    return "";
  }
  void group_by_affinity() {
    numas_ = sets_.back();
    std::map<size_t, size_t> speaker;  // of each set: the first that has an affinity
    for (size_t i = 0; i < n_; ++i) {
      if (affinity(i).empty()) continue;
      const auto [first, is_new] = speaker.emplace(numas_.of(i), i);
      if (!is_new && affinity(first->second) != affinity(i))
        t_.found({Severity::warning, "smi-contradiction", fmt::format("line {}", t_.devices[i].line),
                  fmt::format("{} and {} are joined within one NUMA node and have different affinities; that "
                              "of {} is taken",
                              label(first->second), label(i), label(first->second)),
                  ""});
    }
    std::vector<bool> apart(n_ * n_);  // of sets
    for (size_t i = 0; i < n_; ++i)
      for (size_t j = 0; j < n_; ++j)
        if (pair(i, j).path_class == PathClass::sys) apart[numas_.of(i) * n_ + numas_.of(j)] = true;
    std::map<std::string, std::vector<std::vector<size_t>>> alike;  // by affinity: the sets of each NUMA node
    for (size_t i = 0; i < n_; ++i) {
      if (sets_.back().of(i) != i) continue;
      const auto s = speaker.find(i);
      auto& nodes = alike[s == speaker.end() ? "" : affinity(s->second)];
      const auto fitting = std::find_if(nodes.begin(), nodes.end(), [&](const std::vector<size_t>& sets) {
        return std::none_of(sets.begin(), sets.end(), [&](size_t other) { return apart[other * n_ + i]; });
      });
      if (fitting != nodes.end()) {
        numas_.join(fitting->front(), i);
        fitting->push_back(i);
        continue;
      }
      if (s != speaker.end() && !nodes.empty())
        t_.found(
            {Severity::note, "smi-contradiction", fmt::format("line {}", t_.devices[s->second].line),
             fmt::format(
                 "{} and {} have the same affinity and reach each other by SYS: two NUMA nodes are assumed",
                 label(nodes.front().front()), label(s->second)),
             ""});
      nodes.push_back({i});
    }
  }

  void add_numa_nodes() {
    struct Place {
      int os_index;
      size_t set;
      std::vector<int> cpus;
    };
    std::vector<Place> places;
    for (size_t s = 0; s < n_; ++s) {
      if (numas_.of(s) != s) continue;
      Place p{kNone, s, {}};
      for (size_t i = n_; i-- > 0;) {
        if (numas_.of(i) != s || !t_.devices[i].gpu) continue;
        if (!t_.devices[i].numas.empty()) p.os_index = t_.devices[i].numas.front();
        if (!t_.devices[i].cpus.empty()) p.cpus = t_.devices[i].cpus;
      }
      const bool taken = std::any_of(places.begin(), places.end(), [&](const Place& o) {
        return p.os_index != kNone && o.os_index == p.os_index;
      });
      if (taken) p.os_index = kNone, p.cpus.clear();
      places.push_back(std::move(p));
    }
    std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return static_cast<unsigned>(a.os_index) < static_cast<unsigned>(b.os_index);  // kNone comes last
    });
    for (Place& p : places) {
      Node n{.kind = Kind::numa};
      n.name = p.os_index == kNone ? "NUMA" : fmt::format("NUMA{}", p.os_index);
      n.made_up = p.os_index == kNone && p.cpus.empty();
      n.detail = Numa{.os_index = p.os_index, .cpus = std::move(p.cpus)};
      numa_node_[p.set] = m_.add(std::move(n));
    }
  }

  int add_bridge(Kind kind, std::string name, int parent) {
    return m_.add({.kind = kind, .name = std::move(name), .parent = parent, .made_up = true});
  }

  void add_pci() {
    const auto& [pix, pxb, phb, node] = std::tie(sets_[0], sets_[1], sets_[2], sets_[3]);
    std::map<size_t, int> host_bridge, outer, inner;
    std::vector<size_t> in_pix(n_), parts_of_pxb(n_);
    for (size_t i = 0; i < n_; ++i) ++in_pix[pix.of(i)], parts_of_pxb[pxb.of(i)] += pix.of(i) == i;
    for (size_t i = 0; i < n_; ++i) {
      const auto made = [](std::map<size_t, int>& known, size_t set, auto make) {
        const auto [at, is_new] = known.emplace(set, kNone);
        if (is_new) at->second = make();
        return at->second;
      };
      int parent = made(host_bridge, phb.of(i), [&] {
        return add_bridge(Kind::host_bridge, fmt::format("bridge{}", host_bridge.size() - 1),
                          numa_node_[numas_.of(i)]);
      });
      const bool nested = parts_of_pxb[pxb.of(i)] > 1;
      if (nested)
        parent = made(outer, pxb.of(i), [&] {
          return add_bridge(Kind::pci_switch, fmt::format("switch{}", outer.size() - 1), parent);
        });
      if (nested || in_pix[pix.of(i)] > 1)
        parent = made(inner, pix.of(i), [&] {
          return add_bridge(Kind::pci_switch,
                            nested ? fmt::format("{}.{}", m_[parent].name, inner.size() - 1)
                                   : fmt::format("switch.{}", inner.size() - 1),
                            parent);
        });
      add_device(i, parent);
    }
  }

  void add_device(size_t i, int parent) {
    const SmiDevice& d = t_.devices[i];
    if (d.gpu) {
      node_[i] = m_.add({.kind = Kind::gpu,
                         .name = d.label,
                         .parent = parent,
                         .detail = Gpu{.index = d.index, .memory_numa = d.memory_numa}});
      return;
    }
    const int card = m_.add(
        {.kind = Kind::nic, .name = fmt::format("{} card", d.label), .parent = parent, .detail = Nic{}});
    node_[i] = m_.add({.kind = Kind::port, .name = d.name, .parent = card, .detail = Port{.device = d.name}});
  }

  // How many links a GPU has to all others, were they direct.
  int direct_links(size_t gpu) {
    int sum = 0;
    for (size_t j = 0; j < n_; ++j) sum += j == gpu ? 0 : pair(gpu, j).nvlinks;
    return sum;
  }

  Rate rate_of(int links, int of_gpu) const {
    const int most_before_hopper = nvlink_ports(80);
    const Rate one = nvlink_rate(of_gpu > most_before_hopper ? 90 : 0);
    return {links * one.gb_per_s, Source::assumed};
  }

  // GPUs that are joined are so through NVSwitches where direct links would be more than a GPU has, and all
  // are with all.
  void add_nvlinks() {
    const int most = nvlink_ports(90);
    Sets fabric(n_);
    for (size_t i = 0; i < n_; ++i)
      for (size_t j = 0; j < i; ++j)
        if (pair(i, j).nvlinks > 0) fabric.join(i, j);
    for (size_t s = 0; s < n_; ++s) {
      std::vector<size_t> members;
      for (size_t i = 0; i < n_; ++i)
        if (fabric.of(i) == s) members.push_back(i);
      if (members.size() < 2) continue;
      bool all_with_all = true, too_many = false;
      for (const size_t i : members) {
        too_many = too_many || direct_links(i) > most;
        for (const size_t j : members)
          all_with_all = all_with_all && (i == j || !pair(i, j).known() || pair(i, j).nvlinks > 0);
      }
      if (too_many && all_with_all)
        add_nvswitch(members);
      else
        add_direct_links(members, too_many);
    }
  }

  void add_nvswitch(const std::vector<size_t>& gpus) {
    const int s = m_.add({.kind = Kind::nvswitch, .name = "NVSwitch", .detail = NvSwitch{}, .made_up = true});
    for (const size_t i : gpus) {
      int links = 0;  // a GPU reaches each other one over as many as both have
      for (const size_t j : gpus) links = i == j ? links : std::max(links, pair(i, j).nvlinks);
      m_.link({node_[i], s, LinkKind::nvlink, links, rate_of(links, links), nvlink_latency()});
    }
  }

  void add_direct_links(const std::vector<size_t>& gpus, bool too_many) {
    for (const size_t i : gpus) {
      if (too_many && direct_links(i) > nvlink_ports(90))
        t_.found({Severity::warning, "smi-contradiction", fmt::format("line {}", t_.devices[i].line),
                  fmt::format("{} would have {} NVLinks, and no GPU known has more than {}; through NVSwitch "
                              "it would reach all others of them",
                              label(i), direct_links(i), nvlink_ports(90)),
                  ""});
      for (const size_t j : gpus) {
        const int links = pair(i, j).nvlinks;
        if (j < i && links > 0)
          m_.link({node_[j], node_[i], LinkKind::nvlink, links,
                   rate_of(links, std::min(direct_links(i), direct_links(j))), nvlink_latency()});
      }
    }
  }

  // Only where a GPU is coherent with its CPU, joined by C2C, does the system give its memory a NUMA node.
  void add_c2c() {
    for (size_t i = 0; i < n_; ++i) {
      const SmiDevice& d = t_.devices[i];
      if (!d.gpu || d.memory_numa == kNone) continue;
      const int numa = m_.numa_of(node_[i]);
      m_.link({node_[i], numa, LinkKind::c2c, 1, c2c_rate(), 0});
      t_.found({Severity::note, "smi-assumed", d.label,
                fmt::format("its memory is NUMA node {}: it is taken to be joined to {} by C2C",
                            d.memory_numa, m_[numa].name),
                ""});
    }
  }

  void compare() {
    const SmiTable again = smi_table_of(m_);
    std::map<int, size_t> place;  // of a node
    for (size_t i = 0; i < n_; ++i) place[again.devices[i].node] = i;
    for (size_t i = 0; i < n_; ++i)
      for (size_t j = 0; j < i; ++j) {
        const SmiCell &want = pair(i, j), &got = again.cell(place.at(node_[i]), place.at(node_[j]));
        if (!want.known() || want.same(got)) continue;
        t_.found({Severity::warning, "smi-contradiction", where(want),
                  fmt::format("{} and {}: {} doesn't fit what the other cells say, which make it {}{}",
                              label(i), label(j), want.text(), got.text(), because(i, j, got)),
                  "print the table again; a virtual machine may show places that the hardware doesn't have"});
      }
  }
  // Names two cells that make a pair closer than it says.
  std::string because(size_t i, size_t j, const SmiCell& got) {
    for (size_t k = 0; k < n_; ++k) {
      if (k == i || k == j) continue;
      const SmiCell &a = pair(i, k), &b = pair(k, j);
      if (a.known() && b.known() && a.path_class <= got.path_class && b.path_class <= got.path_class &&
          a.nvlinks == 0 && b.nvlinks == 0)
        return fmt::format(": {} reaches {} by {} ({}), which reaches {} by {} ({})", label(i), label(k),
                           a.text(), where(a), label(j), b.text(), where(b));
    }
    return "";
  }

  void note_assumptions() {
    std::vector<std::string> by_nvlink, nowhere;
    for (size_t i = 0; i < n_; ++i) {
      const SmiDevice& d = t_.devices[i];
      bool pci = false, near = false, nvlink = false;
      for (size_t j = 0; j < n_; ++j) {
        if (i == j) continue;
        const SmiCell& c = pair(i, j);
        nvlink = nvlink || c.nvlinks > 0;
        pci = pci || (c.known() && c.nvlinks == 0);
        near = near || (c.known() && c.nvlinks == 0 && c.path_class < PathClass::node);
      }
      if (n_ > 1 && !pci && affinity(i).empty())
        nowhere.push_back(d.label);
      else if (nvlink && !near)
        by_nvlink.push_back(d.label);
    }
    if (!nowhere.empty())
      t_.found({Severity::note, "smi-assumed", fmt::format("{}", fmt::join(nowhere, ", ")),
                "the table doesn't tell their NUMA node and place on PCIe: one NUMA node and a host bridge "
                "each are assumed",
                "read the machine's NCCL topology file or run muster topo there"});
    if (!by_nvlink.empty())
      t_.found({Severity::note, "smi-assumed", fmt::format("{}", fmt::join(by_nvlink, ", ")),
                "the table shows their NVLinks in place of their PCIe, and nothing is close to them: a host "
                "bridge each is assumed",
                "read the machine's NCCL topology file or run muster topo there"});
    t_.found({Severity::note, "smi-assumed", "all links",
              "the table has no speeds: PCIe 3.0 x16, network ports of 100 Gbit/s and usual rates of NVLink "
              "are assumed",
              "read the machine's NCCL topology file or run muster topo there"});
  }

  SmiTable t_;
  size_t n_;
  Machine m_;
  std::vector<SmiCell> pairs_;
  std::vector<Sets> sets_;  // one per level
  Sets numas_;
  std::vector<int> numa_node_;  // of a set of numas_
  std::vector<int> node_;       // of a device
};

// Links that both have to the same NVSwitch, and those between them.
int nvlinks_between(const Machine& m, const std::vector<std::map<int, int>>& nvlinks, int a, int b) {
  int sum = 0;
  for (const auto& [to, links] : nvlinks[static_cast<size_t>(a)]) {
    if (to == b) sum += links;
    if (m[to].kind != Kind::nvswitch) continue;
    const auto& others = nvlinks[static_cast<size_t>(b)];
    if (const auto common = others.find(to); common != others.end()) sum += std::min(links, common->second);
  }
  return sum;
}

// The machine as PCI alone joins it.
Machine without_nvlinks(const Machine& m) {
  Machine pci = m;
  std::erase_if(pci.links, [](const Link& l) { return is_nvlink_class(l.kind) || l.kind == LinkKind::c2c; });
  complete(pci);  // a GPU that hangs on its CPU by C2C alone still has its place there
  return pci;
}

}  // namespace

Machine machine_of(const SmiTable& table) { return Builder(table).build(); }

SmiTable smi_table_of(const Machine& m) {
  SmiTable t;
  t.name = m.name;
  std::vector<int> nodes;
  std::vector<std::map<int, int>> nvlinks(m.nodes.size());
  for (const Link& l : m.links) {
    if (!is_nvlink_class(l.kind)) continue;
    nvlinks[static_cast<size_t>(l.a)][l.b] += l.count;
    nvlinks[static_cast<size_t>(l.b)][l.a] += l.count;
  }
  std::vector<int> gpus = m.all(Kind::gpu), ports = m.all(Kind::port);
  std::stable_sort(gpus.begin(), gpus.end(), [&](int a, int b) { return m.gpu(a).index < m.gpu(b).index; });
  bool numbered = true;  // each its own, as the driver does
  for (size_t i = 0; i < gpus.size(); ++i)
    numbered =
        numbered && m.gpu(gpus[i]).index >= 0 && (i == 0 || m.gpu(gpus[i]).index > m.gpu(gpus[i - 1]).index);
  for (const int g : gpus) {
    if (m[g].hidden) continue;
    const Gpu& gpu = m.gpu(g);
    SmiDevice d{.gpu = true,
                .index = numbered ? gpu.index : static_cast<int>(nodes.size()),
                .node = g,
                .memory_numa = gpu.memory_numa};
    d.label = fmt::format("GPU{}", d.index);
    if (const int numa = m.numa_of(g); numa != kNone && !m[numa].made_up) {
      d.cpus = m.numa(numa).cpus;
      if (m.numa(numa).os_index != kNone) d.numas = {m.numa(numa).os_index};
    }
    t.devices.push_back(std::move(d));
    nodes.push_back(g);
  }
  const size_t gpu_count = nodes.size();
  for (const int p : ports) {
    if (m[p].hidden || m[m.nic_of(p)].hidden) continue;
    t.devices.push_back({.label = fmt::format("NIC{}", nodes.size() - gpu_count),
                         .name = m.port(p).device.empty() ? m[p].name : m.port(p).device,
                         .node = p});
    nodes.push_back(p);
  }
  t.cells.resize(nodes.size() * nodes.size());
  const Machine pci = without_nvlinks(m);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::vector<Path> paths = paths_from(pci, nodes[i]);
    t.cell(i, i).path_class = PathClass::loc;
    for (size_t j = 0; j < i; ++j) {
      SmiCell c;
      // Two ports of one card are at one place; so are a card and what it carries.
      c.path_class = std::max(paths[static_cast<size_t>(nodes[j])].path_class, PathClass::pix);
      if (const int links = nvlinks_between(m, nvlinks, nodes[i], nodes[j])) c = {PathClass::nvl, links};
      t.cell(i, j) = t.cell(j, i) = c;
    }
  }
  return t;
}

Machine read_smi_matrix(std::string_view text, const std::string& name) {
  return machine_of(parse_smi_table(text, name));
}

std::string write_smi_matrix(const Machine& m) { return print_smi_table(smi_table_of(m)); }

}  // namespace muster::topology
