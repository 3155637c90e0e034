#include "topology/dot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "topology/paths.h"

namespace muster::topology {
namespace {

std::string quoted(std::string_view text) {
  std::string r = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') r += '\\';
    if (c == '\n')
      r += "\\n";
    else if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f)
      r += c;
  }
  return r + '"';
}

struct Look {
  std::string_view colour, name;
};
Look look_of(LinkKind k) {
  switch (k) {
    case LinkKind::nvlink:
    case LinkKind::xgmi:
      return {"#2e7d32", name_of(k)};
    case LinkKind::c2c:
      return {"#6a1b9a", name_of(k)};
    case LinkKind::pcie:
      return {"#1565c0", name_of(k)};
    case LinkKind::cpu:
      return {"#c62828", name_of(k)};
    case LinkKind::network:
      return {"#ef6c00", name_of(k)};
  }
  return {"black", "?"};
}

// 3 GB/s (a slow card) is 1 point wide, 800 GB/s (all NVLinks of a Blackwell GPU) 6.6.
double width_of(double gb_per_s) {
  return std::clamp(1 + 0.7 * std::log2(std::max(gb_per_s, 3.0) / 3), 1.0, 8.0);
}

class DotWriter {
 public:
  std::string write(const Cluster& c) {
    add("graph {} {{\n  graph [rankdir=TB, fontname=\"Helvetica\", newrank=true];\n",
        quoted(c.name.empty() ? "topology" : c.name));
    add("  node [shape=box, style=\"filled,rounded\", fillcolor=white, fontname=\"Helvetica\", "
        "fontsize=10];\n  edge [fontname=\"Helvetica\", fontsize=8];\n");
    const bool many = c.host_count() > 1;
    for (size_t s = 0; s < c.shapes.size(); ++s) {
      int hosts = 0;
      for (const HostGroup& g : c.hosts) hosts += g.shape == static_cast<int>(s) ? g.count : 0;
      machine(*c.shapes[s], static_cast<int>(s),
              many ? fmt::format("{} ({} {})", c.shapes[s]->name, hosts, hosts == 1 ? "host" : "hosts")
                   : c.shapes[s]->name);
    }
    if (many) fabric(c);
    text_ += "}\n";
    return std::move(text_);
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), text, std::forward<Args>(args)...);
  }
  static std::string id(int shape, int node) { return fmt::format("s{}n{}", shape, node); }

  void machine(const Machine& m, int shape, const std::string& title) {
    add("  subgraph cluster_s{} {{\n    label={}; style=solid; color=grey50;\n", shape, quoted(title));
    std::map<int, std::vector<int>> by_numa;
    for (int i = 0; i < static_cast<int>(m.nodes.size()); ++i) by_numa[m.numa_of(i)].push_back(i);
    for (const auto& [numa, nodes] : by_numa) {
      if (numa != kNone)
        add("    subgraph cluster_s{}numa{} {{\n      label=\"\"; style=\"filled,rounded\"; color=grey92;\n",
            shape, numa);
      for (const int i : nodes) node(m, shape, i);
      if (numa != kNone) add("    }}\n");
    }
    for (const Link& l : m.links) link(m, shape, l);
    add("  }}\n");
  }

  void node(const Machine& m, int shape, int i) {
    const Node& n = m[i];
    std::string label = n.name;
    std::string_view fill = "white";
    switch (n.kind) {
      case Kind::numa:
        fill = "#ffe0b2";
        break;
      case Kind::host_bridge:
        fill = "#eeeeee";
        break;
      case Kind::pci_switch:
        fill = "#bbdefb";
        label = "PCI switch\n" + n.name;
        break;
      case Kind::gpu:
        fill = "#c8e6c9";
        if (!m.gpu(i).model.empty()) label += "\n" + m.gpu(i).model;
        break;
      case Kind::nvswitch:
        fill = "#a5d6a7";
        label = fmt::format("{} x{}", n.name, std::get<NvSwitch>(n.detail).count);
        break;
      case Kind::nic:
        fill = "#fff9c4";
        break;
      case Kind::port:
        fill = "#ffecb3";
        if (m.port(i).gbit_per_s > 0) label += fmt::format("\n{} Gbit/s", m.port(i).gbit_per_s);
        break;
    }
    add("      {} [label={}, fillcolor=\"{}\"{}];\n", id(shape, i), quoted(label), fill,
        n.hidden || n.made_up ? ", style=\"filled,rounded,dashed\"" : "");
  }

  void link(const Machine& m, int shape, const Link& l) {
    const Look look = look_of(l.kind);
    // The tree of PCI gives the ranks from top to bottom; what goes across doesn't move it.
    const bool across = m[l.a].parent != l.b && m[l.b].parent != l.a;
    const auto [from, to] = m[l.a].parent == l.b ? std::pair(l.b, l.a) : std::pair(l.a, l.b);
    std::string label = fmt::format("{:.4g}", l.rate.gb_per_s);
    if (is_nvlink_class(l.kind) && l.count > 1)
      label = fmt::format("{} links, {:.4g}", l.count, l.rate.gb_per_s);
    add("    {} -- {} [color=\"{}\", penwidth={:.1f}, label={}, fontcolor=\"{}\", tooltip={}{}];\n",
        id(shape, from), id(shape, to), look.colour, width_of(l.rate.gb_per_s), quoted(label), look.colour,
        quoted(fmt::format("{}: {:.4g} GB/s ({})", look.name, l.rate.gb_per_s, name_of(l.rate.source))),
        across ? ", constraint=false" : "");
  }

  void fabric(const Cluster& c) {
    const Fabric& f = c.fabric;
    std::string label =
        fmt::format("{} fabric", f.network == Network::unknown ? "network" : name_of(f.network));
    if (f.rails) label += ", rails";
    if (f.hosts_per_leaf) label += fmt::format("\n{} hosts per leaf", f.hosts_per_leaf);
    if (f.oversubscription > 1) label += fmt::format("\noversubscribed {} : 1", f.oversubscription);
    add("  fabric [shape=ellipse, fillcolor=\"#ffccbc\", label={}];\n", quoted(label));
    const Look look = look_of(LinkKind::network);
    for (size_t s = 0; s < c.shapes.size(); ++s)
      for (const int p : c.shapes[s]->all(Kind::port)) {
        const double gbit = f.gbit_per_s > 0 ? f.gbit_per_s : c.shapes[s]->port(p).gbit_per_s;
        add("  {} -- fabric [color=\"{}\", penwidth={:.1f}];\n", id(static_cast<int>(s), p), look.colour,
            width_of(gbit / 8));
      }
  }

  std::string text_;
};

}  // namespace

std::string write_dot(const Cluster& c) { return DotWriter().write(c); }

}  // namespace muster::topology
