// `muster topo`: what this machine, or the one of a file, is made of.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "comm/host_topology.h"
#include "commands.h"
#include "picture.h"
#include "say.h"
#include "topology/compare.h"
#include "topology/detect.h"
#include "topology/dot.h"
#include "topology/examine.h"
#include "topology/explain.h"
#include "topology/host_paths.h"
#include "topology/json.h"
#include "topology/nccl_graph.h"
#include "topology/nccl_xml.h"
#include "topology/nearest_ports.h"
#include "topology/read.h"
#include "topology/smi_matrix.h"
#include "topology/tree.h"

namespace muster::tool {
namespace {

using namespace topology;

struct TopoOptions {
  std::string file, root, svg;
  std::vector<std::string> paths, diff;
  bool matrix = false, json = false, nccl_xml = false, dot = false, check = false, explain = false;
};

TextStyle style_of_output() {
  const auto value = [](const char* name) {
    return std::string_view(std::getenv(name) ? std::getenv(name) : "");
  };
  TextStyle s;
  s.colour = isatty(STDOUT_FILENO) && value("NO_COLOR").empty() && value("TERM") != "dumb";
  std::string_view locale = value("LC_ALL");
  if (locale.empty()) locale = value("LC_CTYPE");
  if (locale.empty()) locale = value("LANG");
  const std::string charset = lower(locale);
  s.unicode = charset.find("utf-8") != charset.npos || charset.find("utf8") != charset.npos;
  return s;
}

std::string name_of_file(const std::string& file) { return file == "-" ? "standard input" : file; }
Cluster cluster_of_file(const std::string& file) {
  return read_topology(load_file(file), name_of_file(file));
}

const Machine& only_machine(const Cluster& c, std::string_view option) {
  if (c.shapes.size() != 1)
    fail(Result::invalid_argument, "{} is for one kind of host, and this has {}", option, c.shapes.size());
  return *c.shapes[0];
}

// What A and B of --paths are: a device, in a cluster with its host before it: "node3/GPU1".
struct Place {
  int host = 0;
  int node = kNone;
};

int find_device(const Machine& m, const std::string& name) {
  if (const int n = m.find(name); n != kNone) return n;
  if (const auto address = PciAddress::parse(name))
    if (const int n = m.find(*address); n != kNone) return n;
  std::vector<std::string_view> names;
  for (size_t i = 0; i < m.nodes.size(); ++i) {
    if (lower(m.nodes[i].name) == lower(name)) return static_cast<int>(i);
    names.push_back(m.nodes[i].name);
  }
  const std::string_view meant = nearest_name(name, names);
  fail(Result::invalid_argument, "there is no device '{}'. {}", printable(name, 60),
       meant.empty() ? "muster topo lists them; names and PCI addresses are fine"
                     : fmt::format("Is '{}' meant?", meant));
}

Place find_place(const Cluster& c, const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos) {
    if (c.host_count() > 1)
      fail(Result::invalid_argument, "'{}' has no host: HOST/DEVICE is wanted in a cluster, such as {}/GPU0",
           printable(name, 60), c.host_name(0));
    return {0, find_device(c.machine_of(0), name)};
  }
  const std::string host = name.substr(0, slash);
  int first = 0;
  for (const HostGroup& g : c.hosts) {
    for (int i = 0; i < g.count; ++i)
      if (host == (g.count == 1 ? g.name : fmt::format("{}{}", g.name, i)))
        return {first + i, find_device(c.machine_of(first + i), name.substr(slash + 1))};
    first += g.count;
  }
  if (const auto number = parse_c_integer(host); number && *number >= 0 && *number < c.host_count())
    return {static_cast<int>(*number),
            find_device(c.machine_of(static_cast<int>(*number)), name.substr(slash + 1))};
  fail(Result::invalid_argument, "there is no host '{}': the first is {}, the last {}", printable(host, 60),
       c.host_name(0), c.host_name(c.host_count() - 1));
}

int gpu_number(const Machine& m, int node) {
  const std::vector<int> gpus = m.all(Kind::gpu);
  for (size_t i = 0; i < gpus.size(); ++i)
    if (gpus[i] == node) return static_cast<int>(i);
  fail(Result::invalid_argument, "{} is no GPU: between hosts paths lead from GPU to GPU", m[node].name);
}

Path path_to_port(const Machine& m, int gpu, int port) {
  const auto all = nearest_ports(m);
  for (const PortChoice& c : all[static_cast<size_t>(gpu)])
    if (c.port == port) return c.path;
  return {};
}

std::string path_text(const Cluster& c, const std::string& a, const std::string& b, TextStyle style) {
  const Place from = find_place(c, a), to = find_place(c, b);
  const Machine &m = c.machine_of(from.host), &n = c.machine_of(to.host);
  if (from.host == to.host) return hops(m, paths_from(m, from.node)[static_cast<size_t>(to.node)], style);
  const int x = gpu_number(m, from.node), y = gpu_number(n, to.node);
  const HostPath p = HostPaths(c).between(from.host, x, to.host, y);
  if (p.path_class == PathClass::dis)
    return fmt::format("{}: {}\n", name_of(p.path_class), explanation_of(p.path_class));
  std::string text = fmt::format(
      "{}: {}. {:.4g} GB/s, {:.4g} when all GPUs do the same, {:.2f} us one way\n", name_of(p.path_class),
      p.path_class == PathClass::net ? name_of(p.network) : explanation_of(p.path_class), p.rate.gb_per_s,
      p.rate_when_all.gb_per_s, p.latency_us);
  if (p.path_class != PathClass::net) return text + "  through the NVSwitches of both hosts' NVLink domain\n";
  const auto side = [&](int host, const Machine& machine, int gpu, int port) {
    return fmt::format("{}: {}", c.host_name(host), hops(machine, path_to_port(machine, gpu, port), style));
  };
  text += side(from.host, m, x, p.from_port);
  text += fmt::format("network: {} switch{}{}\n", p.switches, p.switches == 1 ? "" : "es",
                      p.same_rail ? ", one rail" : "");
  return text + side(to.host, n, y, p.to_port);
}

int show_difference(const std::vector<std::string>& files) {
  const Cluster a = cluster_of_file(files[0]), b = cluster_of_file(files[1]);
  std::string difference;
  if (a.host_count() != b.host_count()) {
    difference = fmt::format("hosts: {} / {}\n", a.host_count(), b.host_count());
  } else {
    std::set<std::pair<int, int>> compared;
    for (int host = 0, g = 0, left_a = a.hosts[0].count, h = 0, left_b = b.hosts[0].count;
         host < a.host_count();) {
      const int shape_a = a.hosts[static_cast<size_t>(g)].shape,
                shape_b = b.hosts[static_cast<size_t>(h)].shape;
      std::string lines;
      if (compared.insert({shape_a, shape_b}).second &&
          !same_meaning(*a.shapes[static_cast<size_t>(shape_a)], *b.shapes[static_cast<size_t>(shape_b)],
                        &lines))
        difference += (a.host_count() > 1 ? fmt::format("{}:\n", a.host_name(host)) : "") + lines;
      const int step = std::min(left_a, left_b);
      host += step;
      if ((left_a -= step) == 0 && ++g < static_cast<int>(a.hosts.size()))
        left_a = a.hosts[static_cast<size_t>(g)].count;
      if ((left_b -= step) == 0 && ++h < static_cast<int>(b.hosts.size()))
        left_b = b.hosts[static_cast<size_t>(h)].count;
    }
  }
  if (!difference.empty() && !difference.ends_with('\n')) difference += '\n';
  say(difference.empty() ? "the same\n"
                         : fmt::format("first / second: {} / {}\n{}", files[0], files[1], difference));
  return difference.empty() ? 0 : 1;
}

int check(const Cluster& c, TextStyle style) {
  std::vector<Finding> found = all_findings(c);
  std::erase_if(found, [](const Finding& f) { return f.severity == Severity::note; });
  say(found.empty() ? "nothing implausible\n" : list(found, style));
  return found.empty() ? 0 : 1;
}

void show(const Cluster& c, TextStyle style) {
  std::string text = tree(c, style);
  if (c.host_count() == 1) {
    const Machine& m = c.machine_of(0);
    if (!m.all(Kind::gpu).empty()) text += "\n" + write_smi_matrix(m);
    if (const std::string nearest = nearest_table(m, style); !nearest.empty())
      text += "\nThe nearest port of each GPU:\n" + nearest;
  }
  const std::string findings = list(all_findings(c), style);
  text += findings.empty() ? "\nNothing to remark.\n" : "\n" + findings;
  say(text);
}

// Rings and trees are no topology, which is all that the options are for.
int show_graphs(const ChannelGraphs& graphs, const TopoOptions& o, TextStyle style) {
  if (o.matrix || o.json || o.nccl_xml || o.dot || !o.svg.empty() || !o.paths.empty())
    fail(Result::invalid_argument, "{} is NCCL graph XML: it has rings and trees, and no topology",
         name_of_file(o.file));
  std::vector<Finding> found = graphs.findings;
  if (o.check) std::erase_if(found, [](const Finding& f) { return f.severity == Severity::note; });
  say((o.check ? "" : describe(graphs)) +
      (o.check && found.empty() ? "nothing implausible\n" : list(found, style)));
  return o.check && !found.empty() ? 1 : 0;
}

int topo(const TopoOptions& o) {
  const TextStyle style = style_of_output();
  if (o.explain) return say(explanation()), 0;
  if (!o.diff.empty()) return show_difference(o.diff);
  Cluster c;
  if (o.file.empty()) {
    // As ranks see it, with NCCL_TOPO_FILE.
    c = cluster_of(o.root.empty() ? host_topology(Options::inspect()) : detect({.root = o.root}));
  } else {
    const std::string text = load_file(o.file);
    if (recognise(text) == Format::nccl_graph)
      return show_graphs(read_nccl_graph(text, name_of_file(o.file)), o, style);
    c = read_topology(text, name_of_file(o.file));
  }
  if (o.check) return check(c, style);
  if (o.json)
    say(write_json(c));
  else if (o.dot)
    say(write_dot(c));
  else if (!o.svg.empty())
    draw_svg(write_dot(c), o.svg);
  else if (o.nccl_xml)
    say(write_nccl_xml(only_machine(c, "--nccl-xml")));
  else if (o.matrix)
    say(write_smi_matrix(only_machine(c, "--matrix")));
  else if (!o.paths.empty())
    say(path_text(c, o.paths[0], o.paths[1], style));
  else
    show(c, style);
  return 0;
}

}  // namespace

void add_topo(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("topo", "Show what this machine, or the one that a file describes, is made of");
  const auto o = std::make_shared<TopoOptions>();
  command->add_option("file", o->file,
                      "A topology: NCCL or hwloc XML, nvidia-smi topo -m, Muster's JSON or cluster "
                      "description; - is standard input. Without it: this machine");
  CLI::Option_group* what =
      command->add_option_group("output", "What to print instead of tree, matrix and findings");
  what->add_flag("--matrix", o->matrix, "The table of path classes, as nvidia-smi topo -m prints it");
  what->add_flag("--json", o->json, "Everything, for programs");
  what->add_flag("--nccl-xml", o->nccl_xml, "A file for NCCL_TOPO_FILE");
  what->add_flag("--dot", o->dot, "A graph for Graphviz");
  what->add_option("--svg", o->svg, "A picture, drawn by Graphviz into this file")->type_name("FILE");
  what->add_option("--paths", o->paths, "The path between two devices, hop by hop; in a cluster HOST/DEVICE")
      ->expected(2)
      ->allow_extra_args(false)  // a file may follow
      ->type_name("A B");
  what->add_option("--diff", o->diff, "What differs between two files; exit status 1 if anything does")
      ->expected(2)
      ->allow_extra_args(false)
      ->type_name("FILE FILE");
  what->add_flag("--check", o->check, "Only what is implausible; exit status 1 if anything is");
  what->add_flag("--explain", o->explain, "What the classes and numbers mean, and where they come from");
  what->require_option(0, 1);
  command
      ->add_option("--root", o->root,
                   "Look at a captured file system instead of this machine's: sys, proc below this folder")
      ->type_name("DIR");
  command->callback([command, o, &status] {
    if (!o->file.empty() && (!o->diff.empty() || o->explain || !o->root.empty()))
      throw CLI::ValidationError("topo", "FILE doesn't go with --diff, --explain and --root");
    if (command->count("--root") && o->root.empty())
      throw CLI::ValidationError("--root", "a folder is wanted");
    status = topo(*o);
  });
}

}  // namespace muster::tool
