#include "topology/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "topology/paths.h"

namespace muster::topology {
namespace {

constexpr size_t kMostComparedGpus = 256;           // whose paths are compared
constexpr uint32_t kMadeUpDomain = 0xffff;  // and above: of files that number what has no address

bool equal(double a, double b) { return std::abs(a - b) <= 1e-3 * std::max(std::abs(a), std::abs(b)); }

// What a device is called besides its address; empty where nothing is its own.
std::string own_name(const Machine& m, int i) {
  switch (m[i].kind) {
    case Kind::numa:
      return m.numa(i).os_index == kNone ? m[i].name : fmt::format("{}", m.numa(i).os_index);
    case Kind::gpu:
      return fmt::format("{}", m.gpu(i).index);
    case Kind::port:
      return m.port(i).device.empty() ? m[i].name : fmt::format("{}/{}", m.port(i).device, m.port(i).number);
    case Kind::nvswitch:
      return "the NVSwitch";
    default:
      return {};
  }
}

std::string address_name(const Machine& m, int i) {
  const Node& n = m[i];
  return n.pci && n.pci->address.domain < kMadeUpDomain ? n.pci->address.text() : std::string();
}

// GPUs and ports below each node.
std::vector<std::string> below(const Machine& m) {
  std::vector<std::set<std::string>> sets(m.nodes.size());
  for (int i = 0; i < static_cast<int>(m.nodes.size()); ++i) {
    if (m[i].kind != Kind::gpu && m[i].kind != Kind::port) continue;
    for (int up = m[i].parent; up != kNone; up = m[up].parent)
      sets[static_cast<size_t>(up)].insert(fmt::format("{} {}", name_of(m[i].kind), own_name(m, i)));
  }
  std::vector<std::string> r;
  for (const auto& s : sets) r.push_back(fmt::format("{}", fmt::join(s, ", ")));
  return r;
}

class MachineComparison {
 public:
  MachineComparison(const Machine& a, const Machine& b)
      : a_(a), b_(b), to_b_(a.nodes.size(), kNone), to_a_(b.nodes.size(), kNone) {
    match([](const Machine& m, int i) { return own_name(m, i); });
    match([](const Machine& m, int i) { return address_name(m, i); });
    const std::vector<std::string> below_a = below(a), below_b = below(b);
    match([&](const Machine& m, int i) { return (&m == &a_ ? below_a : below_b)[static_cast<size_t>(i)]; });
    match([](const Machine& m, int i) {
      return fmt::format("{}", m[i].parent == kNone ? std::string() : m[m[i].parent].name);
    });
  }

  std::vector<std::string> differences() {
    for (int i = 0; i < static_cast<int>(a_.nodes.size()); ++i) {
      if (to_b(i) == kNone)
        lines_.push_back(fmt::format("{}: {}, only in the first", a_[i].name, name_of(a_[i].kind)));
      else
        compare_nodes(i, to_b(i));
    }
    for (int i = 0; i < static_cast<int>(b_.nodes.size()); ++i)
      if (to_a_[static_cast<size_t>(i)] == kNone)
        lines_.push_back(fmt::format("{}: {}, only in the second", b_[i].name, name_of(b_[i].kind)));
    compare_links();
    if (!lines_.empty()) compare_classes();
    return std::move(lines_);
  }

 private:
  int to_b(int i) const { return to_b_[static_cast<size_t>(i)]; }

  // Pairs those without a partner whose keys are equal, one after the other where several are.
  template <class Key>
  void match(Key key) {
    std::multimap<std::pair<Kind, std::string>, int> left;
    for (int i = 0; i < static_cast<int>(b_.nodes.size()); ++i)
      if (to_a_[static_cast<size_t>(i)] == kNone) left.emplace(std::pair(b_[i].kind, key(b_, i)), i);
    for (int i = 0; i < static_cast<int>(a_.nodes.size()); ++i) {
      if (to_b(i) != kNone) continue;
      const std::string k = key(a_, i);
      const auto at = k.empty() ? left.end() : left.find({a_[i].kind, k});
      if (at == left.end()) continue;
      to_b_[static_cast<size_t>(i)] = at->second;
      to_a_[static_cast<size_t>(at->second)] = i;
      left.erase(at);
    }
  }

  template <class A, class B>
  void say(int node, std::string_view what, const A& first, const B& second) {
    lines_.push_back(fmt::format("{}: {} {} / {}", a_[node].name, what, first, second));
  }
  template <class T>
  void compare(int node, std::string_view what, const T& first, const T& second, const T& unknown) {
    if (first != second && first != unknown && second != unknown) say(node, what, first, second);
  }
  void compare(int node, std::string_view what, Answer3 first, Answer3 second) {
    if (first != second && first != Answer3::unknown && second != Answer3::unknown)
      say(node, what, first == Answer3::yes ? "yes" : "no", second == Answer3::yes ? "yes" : "no");
  }

  // The next above that both have.
  static int common_above(const Machine& m, const std::vector<int>& partner, int i) {
    do i = m[i].parent;
    while (i != kNone && partner[static_cast<size_t>(i)] == kNone);
    return i;
  }

  void compare_nodes(int i, int j) {
    const int up = common_above(a_, to_b_, i), other_up = common_above(b_, to_a_, j);
    if ((up == kNone) != (other_up == kNone) || (up != kNone && to_b(up) != other_up))
      say(i, "below", up == kNone ? "nothing" : a_[up].name,
          other_up == kNone ? "nothing" : b_[other_up].name);
    if (a_[i].pci && b_[j].pci) compare_pci(i, *a_[i].pci, *b_[j].pci);
    switch (a_[i].kind) {
      case Kind::numa: {
        const Numa &x = a_.numa(i), &y = b_.numa(j);
        if (x.cpus != y.cpus && !x.cpus.empty() && !y.cpus.empty())
          say(i, "CPUs", fmt::format("{}", fmt::join(x.cpus, " ")),
              fmt::format("{}", fmt::join(y.cpus, " ")));
        compare(i, "vendor", x.vendor, y.vendor, std::string());
        compare(i, "family", x.family, y.family, kNone);
        compare(i, "model", x.model, y.model, kNone);
        compare(i, "architecture", static_cast<int>(x.arch), static_cast<int>(y.arch),
                static_cast<int>(CpuArch::unknown));
        break;
      }
      case Kind::gpu: {
        const Gpu &x = a_.gpu(i), &y = b_.gpu(j);
        compare(i, "sm", x.sm, y.sm, 0);
        compare(i, "gcn", x.gcn, y.gcn, 0);
        compare(i, "model", x.model, y.model, std::string());
        compare(i, "rank", x.rank, y.rank, kNone);
        compare(i, "GPUDirect", x.gpudirect, y.gpudirect);
        break;
      }
      case Kind::nvswitch:
        compare(i, "switches", std::get<NvSwitch>(a_[i].detail).count, std::get<NvSwitch>(b_[j].detail).count,
                1);
        break;
      case Kind::port: {
        const Port &x = a_.port(i), &y = b_.port(j);
        compare(i, "number for the network plugin", x.index, y.index, kNone);
        if (!equal(x.gbit_per_s, y.gbit_per_s) && x.gbit_per_s > 0 && y.gbit_per_s > 0)
          say(i, "Gbit/s", x.gbit_per_s, y.gbit_per_s);
        if (!equal(x.latency_us, y.latency_us)) say(i, "latency in us", x.latency_us, y.latency_us);
        compare(i, "guid", x.guid, y.guid, std::string());
        compare(i, "network", name_of(x.network), name_of(y.network), name_of(Network::unknown));
        compare(i, "GPUDirect", x.gpudirect, y.gpudirect);
        compare(i, "connections", x.max_connections, y.max_connections, 0);
        if (x.collectives != y.collectives) say(i, "reductions in the network", x.collectives, y.collectives);
        break;
      }
      default:
        break;
    }
  }

  void compare_pci(int i, const Pci& x, const Pci& y) {
    if (x.address != y.address && x.address.domain < kMadeUpDomain && y.address.domain < kMadeUpDomain)
      say(i, "PCI address", x.address.text(), y.address.text());
    const auto hex = [](auto v) { return fmt::format("{:#x}", v); };
    compare(i, "class", hex(x.class_code), hex(y.class_code), hex(0));
    compare(i, "vendor", hex(x.vendor), hex(y.vendor), hex(0));
    compare(i, "device", hex(x.device), hex(y.device), hex(0));
    if (!equal(x.gigatransfers, y.gigatransfers) && x.gigatransfers > 0 && y.gigatransfers > 0)
      say(i, "GT/s", x.gigatransfers, y.gigatransfers);
    compare(i, "lanes", x.lanes, y.lanes, 0);
  }

  struct Bundle {
    int count = 0;
    double gb_per_s = 0;
  };
  using Bundles = std::map<std::tuple<int, int, LinkKind>, Bundle>;  // by the nodes of the first machine

  // Those between nodes that both machines have, and which aren't told already by a node's other place.
  Bundles bundles(const Machine& m, const std::vector<int>& partner, bool second) const {
    Bundles r;
    for (const Link& l : m.links) {
      const int pa = partner[static_cast<size_t>(l.a)], pb = partner[static_cast<size_t>(l.b)];
      if (pa == kNone || pb == kNone) continue;
      const Machine& other = second ? a_ : b_;
      const bool up = m[l.a].parent == l.b || m[l.b].parent == l.a,
                 other_up = other[pa].parent == pb || other[pb].parent == pa;
      if (up != other_up && (l.kind == LinkKind::pcie || l.kind == LinkKind::network)) continue;
      const auto [x, y] = std::minmax(second ? pa : l.a, second ? pb : l.b);
      Bundle& b = r[{x, y, l.kind}];
      b.count += l.count;
      b.gb_per_s += l.rate.gb_per_s;
    }
    return r;
  }

  void compare_links() {
    const Bundles first = bundles(a_, to_b_, false), second = bundles(b_, to_a_, true);
    const auto label = [&](const auto& key) {
      return fmt::format("{} - {}: {}", a_[std::get<0>(key)].name, a_[std::get<1>(key)].name,
                         name_of(std::get<2>(key)));
    };
    for (const auto& [key, x] : first) {
      const auto at = second.find(key);
      if (at == second.end()) {
        lines_.push_back(fmt::format("{} x{}, only in the first", label(key), x.count));
        continue;
      }
      const Bundle& y = at->second;
      if (is_nvlink_class(std::get<2>(key)) && x.count != y.count)
        lines_.push_back(fmt::format("{} links {} / {}", label(key), x.count, y.count));
      if (!equal(x.gb_per_s, y.gb_per_s))
        lines_.push_back(fmt::format("{} GB/s {:g} / {:g}", label(key), x.gb_per_s, y.gb_per_s));
    }
    for (const auto& [key, y] : second)
      if (!first.contains(key))
        lines_.push_back(fmt::format("{} x{}, only in the second", label(key), y.count));
  }

  // What follows from all this for GPUs: how they reach each other and the ports.
  void compare_classes() {
    const std::vector<int> gpus = a_.all(Kind::gpu);
    if (gpus.size() > kMostComparedGpus) return;
    for (const int gpu : gpus) {
      if (to_b(gpu) == kNone) continue;
      const std::vector<Path> first = paths_from(a_, gpu), second = paths_from(b_, to_b(gpu));
      for (int i = 0; i < static_cast<int>(a_.nodes.size()); ++i) {
        if (to_b(i) == kNone || !(a_[i].kind == Kind::port || (a_[i].kind == Kind::gpu && i > gpu))) continue;
        const PathClass x = first[static_cast<size_t>(i)].path_class,
                        y = second[static_cast<size_t>(to_b(i))].path_class;
        if (x != y)
          lines_.push_back(
              fmt::format("{} - {}: class {} / {}", a_[gpu].name, a_[i].name, name_of(x), name_of(y)));
      }
    }
  }

  const Machine &a_, &b_;
  std::vector<int> to_b_, to_a_;  // the same device in the other machine
  std::vector<std::string> lines_;
};

}  // namespace

bool same_meaning(const Machine& first, const Machine& second, std::string* difference) {
  const std::vector<std::string> lines = MachineComparison(first, second).differences();
  if (difference) *difference = fmt::format("{}{}", fmt::join(lines, "\n"), lines.empty() ? "" : "\n");
  return lines.empty();
}

}  // namespace muster::topology
