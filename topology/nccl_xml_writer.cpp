#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "topology/gpu_chips.h"
#include "topology/nccl_xml.h"

namespace muster::topology {
namespace {

using Attributes = std::vector<std::pair<const char*, std::string>>;

std::string escaped(std::string_view text) {
  std::string r;
  for (const char c : text) {
    switch (c) {
      case '&':
        r += "&amp;";
        break;
      case '<':
        r += "&lt;";
        break;
      case '>':
        r += "&gt;";
        break;
      case '"':
        r += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          r += fmt::format("&#{};", static_cast<int>(c));
        else
          r += c;
    }
  }
  return r;
}

std::string_view arch_name(CpuArch a) {
  switch (a) {
    case CpuArch::x86_64:
      return "x86_64";
    case CpuArch::arm64:
      return "arm64";
    case CpuArch::ppc64:
      return "ppc64";
    case CpuArch::unknown:
      break;
  }
  return "";
}

std::string affinity_mask(const std::vector<int>& cpus) {
  std::vector<uint32_t> groups;
  for (const int c : cpus) {
    if (c < 0 || c >= 32 * 28) return {};  // 28 groups are what fits in NCCL's longest text
    groups.resize(std::max(groups.size(), static_cast<size_t>(c) / 32 + 1));
    groups[static_cast<size_t>(c) / 32] |= 1u << c % 32;
  }
  std::string r;
  for (size_t i = groups.size(); i-- > 0;) r += fmt::format("{}{:08x}", r.empty() ? "" : ",", groups[i]);
  return r;
}

// NCCL reads whole numbers where it writes them.
std::string number(double v) { return v >= 10'000 ? fmt::format("{:.0f}", v) : fmt::format("{}", v); }

std::string yes_no(Answer3 a) { return a == Answer3::yes ? "1" : "0"; }

class Writer {
 public:
  explicit Writer(const Machine& m)
      : m_(m), children_(m.nodes.size()), addresses_(m.nodes.size()), linked_(m.nodes.size()) {
    for (const Link& l : m.links)
      if (is_nvlink_class(l.kind) || l.kind == LinkKind::c2c) at(linked_, l.a) = at(linked_, l.b) = 1;
    for (int i = 0; i < count(); ++i) {
      if (m[i].parent != kNone) at(children_, m[i].parent).push_back(i);
      if (m[i].pci) taken_.insert(m[i].pci->address);
      amd_ = amd_ || (m[i].kind == Kind::gpu && m.gpu(i).gcn > 0);
    }
    for (int i = 0; i < count(); ++i)
      // A card right below a CPU can do without an address.
      if (m[i].kind == Kind::gpu || m[i].kind == Kind::pci_switch ||
          (m[i].kind == Kind::nic &&
           (m[i].pci || (m[i].parent != kNone && m[m[i].parent].kind == Kind::pci_switch))))
        at(addresses_, i) = m[i].pci ? m[i].pci->address : made_up_address();
    find_silent_gpus();
  }

  std::string write() {
    open(0, "system", {{"version", amd_ ? "2" : "1"}}, true);
    for (const int n : m_.all(Kind::numa)) write_numa(n);
    close(0, "system");
    return std::move(out_);
  }

 private:
  template <class T>
  static T& at(std::vector<T>& v, int i) {
    return v[static_cast<size_t>(i)];
  }
  int count() const { return static_cast<int>(m_.nodes.size()); }

  void open(int depth, const char* tag, const Attributes& attributes, bool has_children) {
    if (++elements_ > NcclXmlLimits::elements)
      fail(Result::invalid_argument,
           "the machine '{}' has more than {} elements in NCCL's format, which are the most that NCCL reads: "
           "leave out network ports that NCCL need not use",
           m_.name, NcclXmlLimits::elements);
    out_ += fmt::format("{:{}}<{}", "", depth * 2, tag);
    for (const auto& [key, value] : attributes) {
      const std::string v = escaped(value);
      if (v.size() > NcclXmlLimits::text)
        fail(Result::invalid_argument, "{} '{}...' of a <{}> has {} characters, and NCCL reads only {}", key,
             v.substr(0, 40), tag, v.size(), NcclXmlLimits::text);
      out_ += fmt::format(" {}=\"{}\"", key, v);
    }
    out_ += has_children ? ">\n" : "/>\n";
  }
  void close(int depth, const char* tag) { out_ += fmt::format("{:{}}</{}>\n", "", depth * 2, tag); }

  // Virtual machines' files number what has no address of its own like this.
  PciAddress made_up_address() {
    for (;;) {
      const int n = ++made_up_;
      const PciAddress a{0xffffu + static_cast<uint32_t>(n / (256 * 32)),
                         static_cast<uint8_t>(0xff - n / 32 % 256), static_cast<uint8_t>(n % 32), 0};
      if (taken_.insert(a).second) return a;
    }
  }

  // GPUs of which only the chip is known need no element, as long as they are counted right without one: in
  // the order of addresses.
  void find_silent_gpus() {
    std::vector<int> silent;
    std::set<int> numbers;
    for (const int g : m_.all(Kind::gpu)) {
      const Gpu& d = m_.gpu(g);
      const std::optional<Pci>& pci = m_[g].pci;
      if (pci && pci->is_gpu() && d.sm == compute_capability_of(*pci) && d.gcn == gcn_of(*pci) &&
          d.rank == kNone && d.gpudirect == Answer3::unknown && !at(linked_, g))
        silent.push_back(g);
      else
        numbers.insert(d.index);
    }
    std::stable_sort(silent.begin(), silent.end(),
                     [&](int a, int b) { return m_[a].pci->address < m_[b].pci->address; });
    int next = 0;
    for (const int g : silent) {
      while (numbers.contains(next)) ++next;
      if (m_.gpu(g).index != next++) return;
    }
    silent_.insert(silent.begin(), silent.end());
  }

  void write_numa(int n) {
    const Numa& d = m_.numa(n);
    Attributes a;
    if (m_.host_hash != 0) a.emplace_back("host_hash", fmt::format("{:#x}", m_.host_hash));
    a.emplace_back("numaid", fmt::format("{}", d.os_index));
    if (const std::string mask = affinity_mask(d.cpus); !mask.empty()) a.emplace_back("affinity", mask);
    if (d.arch != CpuArch::unknown) a.emplace_back("arch", arch_name(d.arch));
    if (!d.vendor.empty()) a.emplace_back("vendor", d.vendor);
    if (d.family != kNone) a.emplace_back("familyid", fmt::format("{}", d.family));
    if (d.model != kNone) a.emplace_back("modelid", fmt::format("{}", d.model));
    const bool any = !at(children_, n).empty();
    open(1, "cpu", a, any);
    write_children(n, 2);
    if (any) close(1, "cpu");
  }

  void write_children(int node, int depth) {
    const std::vector<int>& all = at(children_, node);
    if (all.size() > NcclXmlLimits::children)
      fail(Result::invalid_argument, "'{}' has {} devices below it, and NCCL reads only {}", m_[node].name,
           all.size(), NcclXmlLimits::children);
    for (const int c : all) write_device(c, depth);
  }

  void write_device(int n, int depth) {
    switch (m_[n].kind) {
      case Kind::host_bridge:
        write_children(n, depth);
        break;
      case Kind::pci_switch:
        write_switch(n, depth);
        break;
      case Kind::gpu:
        write_gpu(n, depth);
        break;
      case Kind::nic:
        write_nic(n, depth);
        break;
      case Kind::port:
        break;  // with its card
      case Kind::numa:
      case Kind::nvswitch:
        break;
    }
  }

  Attributes pci_attributes(int n, PciAddress address, uint32_t usual_class) {
    Pci p = m_[n].pci.value_or(Pci{});
    if (p.class_code == 0 && (m_[n].kind != Kind::pci_switch || !m_[n].pci)) p.class_code = usual_class;
    Attributes a{{"busid", address.text()}};
    if (p.class_code != 0) a.emplace_back("class", fmt::format("0x{:06x}", p.class_code));
    if (p.vendor != 0 || p.device != 0) {
      a.emplace_back("vendor", fmt::format("0x{:04x}", p.vendor));
      a.emplace_back("device", fmt::format("0x{:04x}", p.device));
      a.emplace_back("subsystem_vendor", fmt::format("0x{:04x}", p.subsystem_vendor));
      a.emplace_back("subsystem_device", fmt::format("0x{:04x}", p.subsystem_device));
    }
    // Of what isn't known nothing is said: NCCL then asks the system.
    if (p.gigatransfers > 0)
      a.emplace_back("link_speed", fmt::format("{}{} GT/s PCIe", p.gigatransfers,
                                               p.gigatransfers == std::floor(p.gigatransfers) ? ".0" : ""));
    if (p.lanes > 0) a.emplace_back("link_width", fmt::format("{}", p.lanes));
    return a;
  }

  void write_switch(int n, int depth) {
    std::vector<int> peers;
    for (const Link& l : m_.links) {
      if (l.kind != LinkKind::pcie || (l.a != n && l.b != n)) continue;
      const int other = l.a == n ? l.b : l.a;
      if (m_[other].parent != n && m_[n].parent != other && m_[other].kind == Kind::pci_switch)
        peers.push_back(other);
    }
    const bool any = !at(children_, n).empty() || !peers.empty();
    open(depth, "pci", pci_attributes(n, *at(addresses_, n), 0x060400), any);
    write_children(n, depth + 1);
    for (const int p : peers) open(depth + 1, "pcilink", {{"target", at(addresses_, p)->text()}}, false);
    if (any) close(depth, "pci");
  }

  // With the other GPUs of the same function, if there are any: what it is partitioned into.
  void write_gpu(int n, int depth) {
    std::vector<int> parts;
    for (const int c : at(children_, m_[n].parent))
      if (m_[c].kind == Kind::gpu && *at(addresses_, c) == *at(addresses_, n)) parts.push_back(c);
    if (parts.front() != n) return;
    const bool silent = parts.size() == 1 && silent_.contains(n);
    open(depth, "pci", pci_attributes(n, *at(addresses_, n), m_.gpu(n).gcn > 0 ? 0x120000 : 0x030200),
         !silent);
    if (silent) return;
    for (const int part : parts) write_part(part, depth + 1);
    close(depth, "pci");
  }

  void write_part(int n, int depth) {
    const Gpu& g = m_.gpu(n);
    Attributes a;
    if (g.index != kNone) a.emplace_back("dev", fmt::format("{}", g.index));
    if (g.sm > 0) a.emplace_back("sm", fmt::format("{}", g.sm));
    if (g.gcn > 0) a.emplace_back("gcn", fmt::format("{}", g.gcn));
    if (g.rank != kNone) a.emplace_back("rank", fmt::format("{}", g.rank));
    if (g.gpudirect != Answer3::unknown) a.emplace_back("gdr", yes_no(g.gpudirect));
    open(depth, "gpu", a, at(linked_, n));
    for (const Link& l : m_.links)
      if (l.a == n || l.b == n) write_gpu_link(l, l.a == n ? l.b : l.a, depth + 1);
    if (at(linked_, n)) close(depth, "gpu");
  }

  void write_gpu_link(const Link& l, int other, int depth) {
    const auto said = [&](const std::string& target, int links, uint32_t target_class) {
      open(depth, l.kind == LinkKind::xgmi ? "xgmi" : "nvlink",
           {{"target", target},
            {"count", fmt::format("{}", links)},
            {"tclass", fmt::format("0x{:06x}", target_class)}},
           false);
    };
    if (l.kind == LinkKind::c2c) {
      open(depth, "c2c",
           {{"bw", number(l.rate.gb_per_s * 1000 / std::max(1, l.count))},
            {"count", fmt::format("{}", std::max(1, l.count))}},
           false);
    } else if (is_nvlink_class(l.kind) && m_[other].kind == Kind::gpu) {
      const uint32_t usual = l.kind == LinkKind::xgmi ? 0x120000 : 0x030200;
      said(at(addresses_, other)->text(), l.count,
           m_[other].pci && m_[other].pci->class_code != 0 ? m_[other].pci->class_code : usual);
    } else if (is_nvlink_class(l.kind) && m_[other].kind == Kind::numa) {
      said("ffff:fe:00.0", l.count, 0x068001);
    } else if (is_nvlink_class(l.kind)) {
      // Which switch a link leads to and at what address isn't known; NCCL takes all for one. Of more switches than a
      // GPU has links, each GPU takes the next ones, so that all are named.
      const int n = std::get<NvSwitch>(m_[other].detail).count;
      const int first = l.count < n ? std::exchange(next_switch_, (next_switch_ + l.count) % n) : 0;
      for (int i = 0; i < std::min(n, l.count); ++i) {
        const int s = (first + i) % n;
        said(n == 1 ? "fffffff:ffff:ff" : fmt::format("fffe:{:02x}:{:02x}.0", s / 32, s % 32),
             l.count / n + (i < l.count % n ? 1 : 0), 0x068000);
      }
    }
  }

  void write_nic(int n, int depth) {
    const std::vector<int>& ports = at(children_, n);
    if (!at(addresses_, n)) return write_ports(ports, depth);
    const bool silent = m_[n].pci && m_[n].pci->is_nic() && !ports.empty() &&
                        std::all_of(ports.begin(), ports.end(), [&](int p) { return m_[p].made_up; });
    const bool infiniband =
        !ports.empty() && m_[ports[0]].kind == Kind::port && m_.port(ports[0]).network == Network::infiniband;
    open(depth, "pci", pci_attributes(n, *at(addresses_, n), infiniband ? 0x020700 : 0x020000), !silent);
    if (silent) return;
    write_ports(ports, depth + 1);
    close(depth, "pci");
  }

  void write_ports(const std::vector<int>& ports, int depth) {
    open(depth, "nic", {}, !ports.empty());
    for (const int n : ports) {
      if (m_[n].kind != Kind::port) continue;
      const Port& p = m_.port(n);
      Attributes a{{"name", p.device.empty() ? m_[n].name : p.device}};
      if (p.index != kNone) a.emplace_back("dev", fmt::format("{}", p.index));
      a.emplace_back("latency", fmt::format("{}", p.latency_us));
      if (p.gbit_per_s > 0) a.emplace_back("speed", number(p.gbit_per_s * 1000));
      a.emplace_back("port", fmt::format("{}", p.number));
      if (!p.guid.empty()) a.emplace_back("guid", p.guid);
      if (p.max_connections != 0) a.emplace_back("maxconn", fmt::format("{}", p.max_connections));
      if (p.gpudirect != Answer3::unknown) a.emplace_back("gdr", yes_no(p.gpudirect));
      if (p.collectives) a.emplace_back("coll", "1");
      open(depth + 1, "net", a, false);
    }
    if (!ports.empty()) close(depth, "nic");
  }

  const Machine& m_;
  std::vector<std::vector<int>> children_;
  std::vector<std::optional<PciAddress>> addresses_;  // of GPUs, PCI switches and cards
  std::vector<char> linked_;                          // by NVLink, xGMI or C2C
  int next_switch_ = 0;
  std::set<PciAddress> taken_;
  std::set<int> silent_;
  bool amd_ = false;
  int elements_ = 0, made_up_ = 0;
  std::string out_;
};

}  // namespace

std::string write_nccl_xml(const Machine& m) { return Writer(m).write(); }

}  // namespace muster::topology
