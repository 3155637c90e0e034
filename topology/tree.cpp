#include "topology/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "topology/host_paths.h"
#include "topology/nearest_ports.h"

namespace muster::topology {
namespace {

enum class Ink { plain, gpu, nic, switches, cpu, note, warning, error, faint };

std::string inked(TextStyle style, Ink ink, std::string_view text) {
  std::string_view code;
  switch (ink) {
    case Ink::plain:
      break;
    case Ink::gpu:
      code = "1;32";
      break;
    case Ink::nic:
      code = "1;33";
      break;
    case Ink::switches:
      code = "34";
      break;
    case Ink::cpu:
      code = "1";
      break;
    case Ink::note:
      code = "36";
      break;
    case Ink::warning:
      code = "1;33";
      break;
    case Ink::error:
      code = "1;31";
      break;
    case Ink::faint:
      code = "2";
      break;
  }
  // Names come from files: nothing in them may talk to the terminal.
  const std::string clean = printable(text);
  return style.colour && !code.empty() ? fmt::format("\033[{}m{}\033[0m", code, clean) : clean;
}

std::string text_of(Rate r) {
  return fmt::format("{:.4g} GB/s{}", r.gb_per_s, r.source == Source::assumed ? "?" : "");
}

std::string generation(double gigatransfers) {
  constexpr std::array<double, 6> kRates = {2.5, 5, 8, 16, 32, 64};
  for (size_t g = 0; g < kRates.size(); ++g)
    if (gigatransfers == kRates[g]) return fmt::format("gen{}", g + 1);
  return gigatransfers > 0 ? fmt::format("{} GT/s", gigatransfers) : "";
}

std::string size_text(uint64_t bytes) {
  const double gib = static_cast<double>(bytes) / (1 << 30);
  return gib >= 10 ? fmt::format("{:.0f} GiB", gib) : fmt::format("{:.1f} GiB", gib);
}

// The number of an architecture is its name's, where 910 stands for the letter of gfx90a.
std::string gfx(int gcn) { return fmt::format("gfx{}", gcn == 910 ? "90a" : fmt::to_string(gcn)); }

std::string plural(size_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

// "PCI switch 0000:17:00.0", but not "NIC NIC0".
std::string with_kind(const Node& n) {
  const std::string_view kind = name_of(n.kind), last = kind.substr(kind.rfind(' ') + 1);
  return n.name.find(last) == std::string::npos ? fmt::format("{} {}", kind, n.name) : n.name;
}

class TreeWriter {
 public:
  TreeWriter(const Machine& m, TextStyle style) : m_(m), style_(style) {
    for (int i = 0; i < static_cast<int>(m.nodes.size()); ++i) children_[m[i].parent].push_back(i);
  }

  std::string write() {
    for (const int root : children_[kNone])
      if (m_[root].kind != Kind::nvswitch) branch(root, "", "");
    nvlinks();
    between_numas();
    return std::move(text_);
  }

 private:
  void branch(int node, const std::string& before, const std::string& below) {
    text_ += before + line(node) + "\n";
    const std::vector<int>& under = children_[node];
    for (size_t i = 0; i < under.size(); ++i) {
      const bool last = i + 1 == under.size();
      branch(under[i], below + (style_.unicode ? (last ? "└─ " : "├─ ") : (last ? "`- " : "|- ")),
             below + (last             ? "   "
                      : style_.unicode ? "│  "
                                       : "|  "));
    }
  }

  std::string line(int i) const {
    const Node& n = m_[i];
    std::string text;
    switch (n.kind) {
      case Kind::numa:
        text = inked(style_, Ink::cpu, n.name) + numa(m_.numa(i));
        break;
      case Kind::host_bridge:
        text = inked(style_, Ink::plain, n.name);
        break;
      case Kind::pci_switch:
        text = inked(style_, Ink::switches, with_kind(n));
        break;
      case Kind::gpu:
        text = inked(style_, Ink::gpu, n.name) + gpu(m_.gpu(i));
        break;
      case Kind::nic:
        text = inked(style_, Ink::nic, with_kind(n));
        break;
      case Kind::port:
        text = inked(style_, Ink::nic, n.name) + port(m_.port(i));
        break;
      case Kind::nvswitch:
        text = n.name;
        break;
    }
    if (n.pci && n.pci->address.text() != n.name) text += "  " + n.pci->address.text();
    if (n.kind != Kind::port) text += up(i);
    if (n.kind == Kind::gpu) text += nvlinks_at(i);
    if (n.hidden) text += inked(style_, Ink::faint, "  (hidden from this process)");
    if (n.made_up) text += inked(style_, Ink::faint, "  (assumed)");
    return text;
  }

  static std::string numa(const Numa& n) {
    std::string text;
    if (n.package != kNone) text += fmt::format("  package {}", n.package);
    if (!n.cpus.empty()) text += fmt::format("  CPUs {} ({})", ranges(n.cpus), n.cpus.size());
    if (n.memory_bytes) text += "  " + size_text(n.memory_bytes);
    if (!n.vendor.empty()) text += "  " + printable(n.vendor, 60);
    if (!n.allowed) text += "  (not allowed for this process)";
    return text;
  }
  static std::string gpu(const Gpu& g) {
    std::string text;
    if (!g.model.empty()) text += "  " + printable(g.model, 60);
    if (g.sm) text += fmt::format("  sm_{}", g.sm);
    if (g.gcn) text += "  " + gfx(g.gcn);
    return text;
  }
  static std::string port(const Port& p) {
    std::string text;
    if (p.network != Network::unknown) text += fmt::format("  {}", name_of(p.network));
    if (p.gbit_per_s > 0)
      text += fmt::format("  {:.4g} Gbit/s ({:.4g} GB/s)", p.gbit_per_s, p.gbit_per_s / 8);
    if (!p.interface.empty() && p.interface != p.device) text += "  " + printable(p.interface, 60);
    if (p.up == Answer3::no) text += "  down";
    return text;
  }

  std::string up(int i) const {
    const int l = m_.up_link(i);
    if (l == kNone || m_[i].kind == Kind::host_bridge) return "";
    const Link& link = m_.links[static_cast<size_t>(l)];
    std::string text = fmt::format("  {}", name_of(link.kind));
    if (link.kind == LinkKind::pcie && m_[i].pci && m_[i].pci->gigatransfers > 0 && m_[i].pci->lanes > 0)
      text += fmt::format(" {} x{}", generation(m_[i].pci->gigatransfers), m_[i].pci->lanes);
    return text + "  " + text_of(link.rate);
  }

  // "NVLink 18 to NVSwitch 370.8 GB/s"
  std::string nvlinks_at(int gpu) const {
    const NvlinkTotal t = nvlinks_of(m_, gpu);
    std::string text;
    if (t.links) {
      LinkKind kind = LinkKind::nvlink;
      for (const Link& l : m_.links)
        if (is_nvlink_class(l.kind) && (l.a == gpu || l.b == gpu)) kind = l.kind;
      text += fmt::format("  {} {} {}", name_of(kind), plural(static_cast<size_t>(t.links), "link"),
                          text_of(t.rate));
    }
    for (const Link& l : m_.links)
      if (l.kind == LinkKind::c2c && (l.a == gpu || l.b == gpu))
        text += fmt::format("  C2C {}", text_of(l.rate));
    return text;
  }

  // NVSwitches in one line; direct links between GPUs as bundles.
  void nvlinks() {
    for (const int s : m_.all(Kind::nvswitch)) {
      size_t gpus = 0;
      for (const Link& l : m_.links) gpus += is_nvlink_class(l.kind) && (l.a == s || l.b == s);
      text_ += fmt::format("{}: {}, joining {}\n", inked(style_, Ink::gpu, m_[s].name),
                           plural(static_cast<size_t>(std::get<NvSwitch>(m_[s].detail).count), "chip"),
                           plural(gpus, "GPU"));
    }
    std::map<std::string, std::vector<std::string>> bundles;
    for (const Link& l : m_.links)
      if (is_nvlink_class(l.kind) && m_[l.a].kind != Kind::nvswitch && m_[l.b].kind != Kind::nvswitch)
        bundles[fmt::format("{} x {}, {}", l.count, name_of(l.kind), text_of(l.rate))].push_back(
            fmt::format("{}-{}", m_[l.a].name, m_[l.b].name));
    for (const auto& [what, pairs] : bundles)
      text_ += fmt::format("{}: {}\n", what, printable(fmt::format("{}", fmt::join(pairs, ", "))));
  }

  void between_numas() {
    std::map<std::string, size_t> rates;
    for (const Link& l : m_.links)
      if (l.kind == LinkKind::cpu) ++rates[text_of(l.rate)];
    for (const auto& [rate, pairs] : rates)
      text_ += fmt::format("Between NUMA nodes: {} ({})\n", rate, plural(pairs, "pair"));
  }

  const Machine& m_;
  const TextStyle style_;
  std::map<int, std::vector<int>> children_;
  std::string text_;
};

// "H100"; where only its architecture is known "GPU (sm_90)".
std::string kind_of(const Gpu& g) {
  if (!g.model.empty()) return printable(g.model, 60);
  return g.sm ? fmt::format("GPU (sm_{})", g.sm) : g.gcn ? fmt::format("GPU ({})", gfx(g.gcn)) : "GPU";
}

std::string title(const Machine& m) {
  std::map<std::string, size_t> kinds;
  for (const int g : m.all(Kind::gpu)) ++kinds[kind_of(m.gpu(g))];
  std::vector<std::string> gpus;
  for (const auto& [kind, n] : kinds) gpus.push_back(fmt::format("{} x {}", n, kind));
  return fmt::format("{}{}{}, {}, {}", printable(m.name, 100), m.name.empty() ? "" : ": ",
                     gpus.empty() ? "no GPU" : fmt::format("{}", fmt::join(gpus, " + ")),
                     plural(m.all(Kind::port).size(), "network port"),
                     plural(m.all(Kind::numa).size(), "NUMA node"));
}

std::string_view words_for(Neighbourhood n, bool rails) {
  switch (n) {
    case Neighbourhood::host:
      return "within a host";
    case Neighbourhood::nvlink_domain:
      return "within an NVLink domain";
    case Neighbourhood::leaf:
      return rails ? "at the same leaves" : "at one leaf";
    case Neighbourhood::spine:
      return "across the spine";
  }
  return "?";
}

constexpr size_t kMostShapes = 8;  // a line for each pair of them

// Kinds of paths that differ only in the GPU are one line.
std::string host_paths_table(const Cluster& c) {
  if (c.shapes.size() > kMostShapes)
    return fmt::format(
        "How hosts reach each other isn't listed: there are {} kinds of them. --paths tells it of two.\n",
        c.shapes.size());
  struct Row {
    HostPathKind kind;
    int last_gpu;
    uint64_t paths;
  };
  std::vector<Row> rows;
  for (const HostPathKind& k : HostPaths(c).peers()) {
    if (!rows.empty()) {
      Row& r = rows.back();
      HostPath a = r.kind.path, b = k.path;
      a.from_port = b.from_port = a.to_port = b.to_port = kNone;
      if (a == b && r.kind.from_shape == k.from_shape && r.kind.to_shape == k.to_shape &&
          r.kind.hosts == k.hosts) {
        r.last_gpu = k.gpu;
        r.paths += k.paths;
        continue;
      }
    }
    rows.push_back({k, k.gpu, k.paths});
  }
  std::string text = fmt::format("{:<44} {:<6} {:>12} {:>5} {:>8} {:>10} {:>14} {:>12}\n",
                                 "GPU to the same GPU of another host", "GPUs", "paths", "class", "switches",
                                 "GB/s", "GB/s when all", "latency us");
  for (const Row& r : rows) {
    const HostPath& p = r.kind.path;
    std::string what(words_for(r.kind.hosts, c.fabric.rails));
    if (c.shapes.size() > 1)
      what += fmt::format(", {} to {}", printable(c.shapes[static_cast<size_t>(r.kind.from_shape)]->name, 16),
                          printable(c.shapes[static_cast<size_t>(r.kind.to_shape)]->name, 16));
    const std::string gpus =
        r.last_gpu == r.kind.gpu ? fmt::to_string(r.kind.gpu) : fmt::format("{}-{}", r.kind.gpu, r.last_gpu);
    text += fmt::format("{:<44} {:<6} {:>12} {:>5} {:>8} {:>10.4g} {:>14.4g} {:>12.2f}\n", what, gpus,
                        r.paths, name_of(p.path_class), p.switches, p.rate.gb_per_s, p.rate_when_all.gb_per_s,
                        p.latency_us);
  }
  return text;
}

}  // namespace

std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (j > i) text += fmt::format("-{}", numbers[j]);
    i = j + 1;
  }
  return text;
}

std::string tree(const Machine& m, TextStyle style) { return title(m) + "\n" + TreeWriter(m, style).write(); }

std::string tree(const Cluster& c, TextStyle style) {
  if (c.host_count() == 1) return tree(*c.shapes[static_cast<size_t>(c.hosts[0].shape)], style);
  std::string text = fmt::format("{}{}: {} GPUs\n", c.name.empty() ? "" : printable(c.name, 100) + ": ",
                                 plural(static_cast<size_t>(c.host_count()), "host"), c.gpu_count());
  size_t shown = 0;
  for (const HostGroup& g : c.hosts) {
    if (++shown > 20) {
      text += fmt::format("  and {} more groups\n", c.hosts.size() - 20);
      break;
    }
    const std::string names = g.count == 1 ? g.name : fmt::format("{0}0 to {0}{1}", g.name, g.count - 1);
    text += fmt::format("  {} x {}  ({})\n", g.count,
                        printable(c.shapes[static_cast<size_t>(g.shape)]->name, 60), printable(names, 100));
  }
  const Fabric& f = c.fabric;
  text += fmt::format("Fabric: {}{}", name_of(f.network), f.rails ? ", a leaf switch per rail" : "");
  if (f.hosts_per_leaf) text += fmt::format(", {} hosts per leaf", f.hosts_per_leaf);
  if (f.oversubscription > 1) text += fmt::format(", uplinks oversubscribed {} : 1", f.oversubscription);
  if (f.gbit_per_s > 0) text += fmt::format(", {} Gbit/s per port", f.gbit_per_s);
  if (f.hosts_per_nvlink_domain > 1)
    text += fmt::format(", NVLink domains of {} hosts", f.hosts_per_nvlink_domain);
  text += f.source == Source::assumed ? " (assumed)\n\n" : "\n\n";
  for (size_t i = 0; i < c.shapes.size(); ++i) {
    if (i == kMostShapes) {
      text += fmt::format("and {} more kinds of hosts\n\n", c.shapes.size() - i);
      break;
    }
    text += tree(*c.shapes[i], style) + "\n";
  }
  return text + host_paths_table(c);
}

std::string hops(const Machine& m, const Path& p, TextStyle style) {
  if (p.path_class == PathClass::dis)
    return fmt::format("{}: {}\n", name_of(p.path_class), explanation_of(p.path_class));
  std::string text = fmt::format("{}: {}", name_of(p.path_class), explanation_of(p.path_class));
  if (p.links.empty()) return text + "\n";
  text += fmt::format(". {}, {:.2f} us one way\n", text_of(p.rate), p.latency_us);
  for (size_t i = 0; i < p.nodes.size(); ++i) {
    text += fmt::format("  {}{}\n", inked(style, Ink::cpu, m[p.nodes[i]].name),
                        m[p.nodes[i]].name.find(name_of(m[p.nodes[i]].kind)) == std::string::npos
                            ? fmt::format(" ({})", name_of(m[p.nodes[i]].kind))
                            : "");
    if (i == p.links.size()) break;
    const Link& l = m.links[static_cast<size_t>(p.links[i])];
    text += fmt::format("    {} {}{}  {} ({}){}\n", style.unicode ? "│" : "|", name_of(l.kind),
                        is_nvlink_class(l.kind) && l.count > 1 ? fmt::format(" x{}", l.count) : "",
                        text_of(l.rate), name_of(l.rate.source),
                        p.links[i] == p.narrowest ? inked(style, Ink::warning, "  <- narrowest") : "");
  }
  return text;
}

std::string nearest_table(const Machine& m, TextStyle style) {
  const std::vector<int> gpus = m.all(Kind::gpu);
  if (gpus.empty() || m.all(Kind::port).empty()) return "";
  const auto all = nearest_ports(m);
  std::string text;
  for (size_t g = 0; g < gpus.size(); ++g) {
    const PortChoice& c = all[g].front();
    const std::string_view direct = c.gpudirect == Answer3::yes  ? "GPUDirect"
                                    : c.gpudirect == Answer3::no ? "no GPUDirect"
                                                                 : "GPUDirect unknown";
    text += fmt::format("{}{:{}} -> {}{:{}} {:<4} {:>14}  {} ({})\n", inked(style, Ink::gpu, m[gpus[g]].name),
                        "", m[gpus[g]].name.size() < 8 ? 8 - m[gpus[g]].name.size() : 0,
                        inked(style, Ink::nic, m[c.port].name), "",
                        m[c.port].name.size() < 12 ? 12 - m[c.port].name.size() : 0,
                        name_of(c.path.path_class), text_of(c.path.rate), direct, c.why);
  }
  return text;
}

std::string list(const std::vector<Finding>& findings, TextStyle style) {
  std::string text;
  for (const Finding& f : findings) {
    const Ink ink = f.severity == Severity::error     ? Ink::error
                    : f.severity == Severity::warning ? Ink::warning
                                                      : Ink::note;
    // "GPU3: GPU3 reaches ..." says no more than "GPU3 reaches ..."
    const bool said = f.where.empty() || f.where == "host" || f.where == "cluster" ||
                      f.text.find(f.where) != std::string::npos;
    text += fmt::format("{}: {}{} [{}]\n", inked(style, ink, name_of(f.severity)),
                        said ? "" : printable(f.where, 200) + ": ", printable(f.text), f.id);
    const Finding* next = &f == &findings.back() ? nullptr : &f + 1;
    const bool comes_again = next && next->id == f.id && next->remedy == f.remedy;
    if (!f.remedy.empty() && !comes_again) text += fmt::format("  {}\n", printable(f.remedy));
  }
  return text;
}

}  // namespace muster::topology
