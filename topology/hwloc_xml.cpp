#include "topology/hwloc_xml.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "topology/cpu_set.h"
#include "topology/gpu_chips.h"
#include "topology/hwloc_matrix.h"
#include "topology/hwloc_objects.h"
#include "topology/network_names.h"
#include "topology/nvlink_fabric.h"

namespace muster::topology {
namespace {

using OsDevice = HwlocObjects::OsDevice;
using Device = HwlocObjects::Device;

std::string_view info(const OsDevice& d, std::string_view key) {
  const auto it = d.info.find(key);
  return it == d.info.end() ? std::string_view() : std::string_view(it->second);
}

int trailing_number(std::string_view name) {
  const size_t last = name.find_last_not_of("0123456789");
  const std::string_view digits = last == name.npos ? name : name.substr(last + 1);
  int v = kNone;
  std::from_chars(digits.data(), digits.data() + digits.size(), v);
  return v;
}

class MachineMaker {
 public:
  explicit MachineMaker(const XmlDocument& document) : xml_(document), o_(read_hwloc_objects(document)) {}

  Machine make() {
    m_.name = o_.host_name;
    add_numas();
    add_functions();
    add_gpus();
    add_ports();
    number_gpus(m_);
    recognise_chips(m_);
    for (const HwlocMatrix& matrix : read_hwloc_matrices(xml_)) {
      if (matrix.by_os_index) continue;
      if (matrix.name == "NVLinkBandwidth") add_nvlink_matrix(matrix);
      if (matrix.name == "XGMIBandwidth") add_xgmi_matrix(matrix);
    }
    if (nvswitches_ > 0) set_nvswitches(m_, nvswitches_);
    assume_nvlinks(m_, "the hwloc file");
    complete(m_);
    validate(m_);
    return std::move(m_);
  }

 private:
  const HwlocObjects::Place& place(int i) const { return o_.places[static_cast<size_t>(i)]; }

  // The package of a NUMA node: around it, or the only one in it (version 1).
  const HwlocObjects::Package* package_of(const HwlocObjects::NumaNode& n, bool* only) const {
    *only = true;
    const auto [above, first_numa, last_numa, first, last] = place(n.place);
    if (last > first) {
      *only = last - first == 1;
      return &o_.packages[first];
    }
    for (int up = above; up != kNone; up = place(up).above)
      for (const HwlocObjects::Package& p : o_.packages)
        if (p.place == up) return &p;
    return nullptr;
  }

  void add_numas() {
    for (const HwlocObjects::NumaNode& n : o_.numas) {
      Numa numa = n.numa;
      bool only = true;
      const HwlocObjects::Package* p = package_of(n, &only);
      if (!p && !o_.packages.empty())
        p = &o_.packages[0], only = false;  // memory beside the packages: what CPU it is at
      if (p) {
        numa.arch = o_.arch != CpuArch::unknown ? o_.arch : p->arch;
        numa.vendor = p->vendor;
        numa.family = p->family;
        numa.model = p->model;
        if (only) numa.package = p->os_index;
      } else {
        numa.arch = o_.arch;
      }
      if (!o_.allowed.empty() && !numa.cpus.empty()) numa.allowed = intersect(numa.cpus, o_.allowed);
      const std::string name = numa.os_index == kNone ? "NUMA" : fmt::format("NUMA{}", numa.os_index);
      numas_.push_back(m_.add({.kind = Kind::numa, .name = name, .detail = std::move(numa)}));
    }
    if (numas_.empty()) {
      Numa numa{.arch = o_.arch};
      if (!o_.packages.empty()) {
        const HwlocObjects::Package& p = o_.packages[0];
        if (numa.arch == CpuArch::unknown) numa.arch = p.arch;
        numa.vendor = p.vendor;
        numa.family = p.family;
        numa.model = p.model;
      }
      numas_.push_back(
          m_.add({.kind = Kind::numa, .name = "NUMA0", .detail = std::move(numa), .made_up = true}));
    }
  }

  // The first NUMA node at a place, or of the place around it; whether there are others as near.
  int numa_at(int at, bool* ambiguous) const {
    *ambiguous = false;
    for (int up = at; up != kNone; up = place(up).above)
      if (const auto& p = place(up); p.last_numa > p.first_numa) {
        *ambiguous = p.last_numa - p.first_numa > 1;
        return numas_[p.first_numa];
      }
    return numas_[0];
  }

  void tell_duplicates(const std::vector<PciFunction>& list) {
    std::set<PciAddress> seen;
    int again = 0;
    size_t first = 0;
    for (size_t i = 0; i < list.size(); ++i)
      if (!seen.insert(list[i].pci.address).second && again++ == 0) first = i;
    if (again > 0)
      m_.findings.push_back({Severity::note, "duplicate-pci-address", xml_.where(o_.functions[first].element),
                             fmt::format("{} PCI functions have an address that was there before, the first {}",
                                         again, list[first].pci.address.text()),
                             ""});
  }

  void add_functions() {
    std::vector<PciFunction> list;
    list.reserve(o_.functions.size());
    for (HwlocObjects::Function& f : o_.functions) list.push_back(std::move(f.pci));
    tell_duplicates(list);
    for (const OsDevice& d : o_.devices) {
      if (d.function == kNone) continue;
      PciRole& role = list[static_cast<size_t>(d.function)].role;
      if (role != PciRole::other && role != PciRole::nvswitch) continue;
      if (d.device == Device::network || d.device == Device::openfabrics) role = PciRole::nic;
      if (const std::string_view b = backend(d); b == "NVML" || b == "CUDA" || b == "RSMI")
        role = PciRole::gpu;
    }
    std::set<std::string> told;
    for (PciFunction& f : list) {
      if (f.parent != kNone) continue;
      bool ambiguous = false;
      f.numa = numa_at(f.numa, &ambiguous);
      if (ambiguous && (f.root.empty() || told.insert(f.root).second))
        ambiguous_.emplace_back(f.root.empty() ? f.pci.address.text() : f.root, f.numa);
    }
    for (size_t f = 0; f < list.size(); ++f)
      for (const char* driver : {"CUDA", "RSMI", "NVML"})
        list[f].parts = std::max(
            list[f].parts,
            static_cast<int>(std::count_if(o_.devices.begin(), o_.devices.end(), [&](const OsDevice& d) {
              return d.function == static_cast<int>(f) && backend(d) == driver;
            })));
    node_ = add_pci_tree(m_, list);
    for (const auto& [root, numa] : ambiguous_)
      if (m_.find(root) != kNone)
        m_.findings.push_back(
            {Severity::note, "pci-locality-unknown", root,
             fmt::format("the file doesn't tell which NUMA node this is near to: {} is assumed",
                         m_[numa].name),
             ""});
    for (const PciFunction& f : list) nvswitches_ += f.role == PciRole::nvswitch;
  }

  static std::string_view backend(const OsDevice& d) {
    if (d.device != Device::gpu) return {};
    const std::string_view b = info(d, "Backend");
    return b.empty() ? info(d, "CoProcType") : b;
  }

  // A GPU may be known to several drivers, and be several devices to one of them: the nodes of its parts
  // follow its own.
  void add_gpus() {
    for (size_t f = 0; f < node_.size(); ++f) {
      const int first = node_[f];
      if (first == kNone || m_[first].kind != Kind::gpu) continue;
      for (const std::string_view wanted :
           {"OpenCL", "CUDA", "RSMI", "NVML"}) {  // the last one's numbers count
        int k = first;
        for (const OsDevice& d : o_.devices) {
          if (d.function != static_cast<int>(f) || backend(d) != wanted) continue;
          if (wanted == "OpenCL" && k > first) break;  // the same device once more, on another platform
          Gpu& gpu = std::get<Gpu>(m_[k].detail);
          gpu.index = trailing_number(d.name);
          if (const std::string_view model = info(d, "GPUModel"); !model.empty())
            gpu.model = printable(trim(model), 120);
          for (const char* key : {"NVIDIAUUID", "AMDUUID"})
            if (const std::string_view uuid = info(d, key); !uuid.empty()) gpu.uuid = printable(uuid, 80);
          if (d.gp_index != kNone) gpu_of_[d.gp_index] = k;
          ++k;
        }
      }
    }
  }

  void add_ports() {
    const int on_pci = static_cast<int>(node_.size());
    for (int f = 0; f < on_pci; ++f)
      if (const int card = node_[static_cast<size_t>(f)]; card != kNone && m_[card].kind == Kind::nic)
        add_ports_of(card, f);
    for (const OsDevice& d : o_.devices) {
      if (d.function != kNone || (d.device != Device::network && d.device != Device::openfabrics)) continue;
      bool ambiguous = false;
      const int card = m_.add({.kind = Kind::nic,
                               .name = fmt::format("card of {}", d.name),
                               .parent = numa_at(d.place, &ambiguous),
                               .detail = Nic{}});
      add_port(card, d, 1, d.device == Device::network ? Network::ethernet : Network::unknown,
               d.device == Device::network ? d.name : std::string());
    }
  }

  void add_ports_of(int card, int function) {
    std::vector<const OsDevice*> rdma, network;
    for (const OsDevice& d : o_.devices) {
      if (d.function != function) continue;
      if (d.device == Device::openfabrics) rdma.push_back(&d);
      if (d.device == Device::network) network.push_back(&d);
    }
    const Pci& pci = *m_[card].pci;
    const bool infiniband = pci.class_code >> 8 == 0x0207 || pci.class_code >> 8 == 0x0c06;
    for (const OsDevice* d : rdma) {
      const Network kind = pci.vendor == 0x1d0f            ? Network::efa
                           : infiniband                    ? Network::infiniband
                           : pci.class_code >> 8 == 0x0200 ? Network::roce
                                                           : Network::unknown;
      int ports = 1;
      while (ports < 16 && d->info.contains(fmt::format("Port{}State", ports + 1))) ++ports;
      for (int p = 1; p <= ports; ++p) {
        std::string interface;
        for (const OsDevice* n : network)
          if (network.size() == 1 || info(*n, "Port") == std::to_string(p)) interface = n->name;
        add_port(card, *d, p, kind, std::move(interface));
      }
    }
    if (!rdma.empty()) return;
    int number = 0;
    for (const OsDevice* n : network)
      add_port(card, *n, ++number, infiniband ? Network::infiniband : Network::ethernet, n->name);
  }

  void add_port(int card, const OsDevice& d, int number, Network network, std::string interface) {
    Port port{.device = d.name, .number = number, .network = network, .interface = std::move(interface)};
    const std::string_view state = info(d, fmt::format("Port{}State", number));
    if (!state.empty()) port.up = state == "4" ? Answer3::yes : Answer3::no;  // IB_PORT_ACTIVE
    port.guid = guid_of(info(d, "SysImageGUID"));
    if (port.guid.empty()) port.guid = guid_of(info(d, "NodeGUID"));
    if (std::get<Nic>(m_[card].detail).guid.empty()) std::get<Nic>(m_[card].detail).guid = port.guid;
    const std::string name =
        number > 1 && d.device == Device::openfabrics ? fmt::format("{}:{}", d.name, number) : d.name;
    m_.add({.kind = Kind::port, .name = name, .parent = card, .detail = std::move(port)});
  }

  // What an object of a matrix is here: a GPU's node, kSwitch, a NUMA node, or kNone.
  static constexpr int kSwitch = -2;
  int node_of(const HwlocMatrix& matrix, size_t i) const {
    const int64_t gp = matrix.objects[i];
    const std::string& type = matrix.types[i];
    if (type == "OSDev") {
      const auto it = gpu_of_.find(gp);
      return it == gpu_of_.end() ? kNone : it->second;
    }
    if (type == "PCIDev") {
      for (size_t f = 0; f < o_.functions.size(); ++f)
        if (o_.functions[f].gp_index == gp)
          return node_[f] != kNone && m_[node_[f]].kind == Kind::gpu ? node_[f] : kSwitch;
      return kNone;
    }
    if (type == "Package" || type == "Socket")
      for (const HwlocObjects::Package& p : o_.packages)
        if (p.gp_index == gp) {
          bool ambiguous = false;
          return numa_at(p.place, &ambiguous);
        }
    return kNone;
  }

  std::vector<int> nodes_of(const HwlocMatrix& matrix) const {
    std::vector<int> nodes(matrix.objects.size());
    for (size_t i = 0; i < nodes.size(); ++i) nodes[i] = node_of(matrix, i);
    return nodes;
  }

  void add_nvlink_matrix(const HwlocMatrix& matrix) {
    const std::vector<int> nodes = nodes_of(matrix);
    const auto is_gpu = [&](int n) { return n >= 0 && m_[n].kind == Kind::gpu; };
    std::vector<int> to_switch(m_.nodes.size(), 0);
    int switches = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      switches += nodes[i] == kSwitch;
      for (size_t j = 0; j < i; ++j) {
        const bool first = is_gpu(nodes[i]);
        if (!first && !is_gpu(nodes[j])) continue;
        const int gpu = first ? nodes[i] : nodes[j], other = first ? nodes[j] : nodes[i];
        const double mb = static_cast<double>(std::max(matrix.at(i, j), matrix.at(j, i)));
        if (mb <= 0 || other == kNone) continue;
        const double links = std::round(mb / 1000 / nvlink_data_sheet_rate(m_.gpu(gpu).sm));
        const int count = links < 1 ? 1 : links > 64 ? 64 : static_cast<int>(links);
        if (other == kSwitch)
          to_switch[static_cast<size_t>(gpu)] += count;
        else
          add_nvlinks(m_, gpu, other, count);
      }
    }
    for (size_t g = 0; g < to_switch.size(); ++g) add_nvswitch_links(m_, static_cast<int>(g), to_switch[g]);
    nvswitches_ = std::max(nvswitches_, switches);
  }

  // Of each node the PCI function that it is a partition of, counted from 0, and how many partitions that has.
  struct Packages {
    std::vector<int> of, partitions;
  };
  Packages packages_of_gpus() const {
    Packages p{std::vector<int>(m_.nodes.size(), kNone), {}};
    std::map<PciAddress, int> known;
    for (const int g : m_.all(Kind::gpu)) {
      int package = static_cast<int>(p.partitions.size());
      if (m_[g].pci) package = known.try_emplace(m_[g].pci->address, package).first->second;
      if (package == static_cast<int>(p.partitions.size())) p.partitions.push_back(0);
      ++p.partitions[static_cast<size_t>(package)];
      p.of[static_cast<size_t>(g)] = package;
    }
    return p;
  }

  void add_xgmi_matrix(const HwlocMatrix& matrix) {
    constexpr uint64_t kWhateverLinks = 100'000;  // hwloc's topology-rsmi.c writes it where there is xGMI
    constexpr double kLink = 50'000;              // the least of amdsmi's, which are multiples of it
    const std::vector<int> nodes = nodes_of(matrix);
    bool counted = false;
    for (size_t i = 0; i < nodes.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        counted = counted || (matrix.at(i, j) != 0 && matrix.at(i, j) != kWhateverLinks);
    bool any = false;
    const Packages package = packages_of_gpus();
    int most_pairs = 1;
    for (size_t i = 0; i < nodes.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        if (nodes[i] < 0 || nodes[j] < 0 || matrix.at(i, j) == 0) continue;
        const int count =
            counted ? std::clamp(static_cast<int>(std::min(
                                     64.0, std::round(static_cast<double>(matrix.at(i, j)) / kLink))),
                                 1, 64)
                    : 1;
        // Links lead from package to package: partitions of one share them.
        const int a = package.of[static_cast<size_t>(nodes[i])], b = package.of[static_cast<size_t>(nodes[j])];
        const int pairs =
            a == b || a == kNone || b == kNone ? 1 : package.partitions[static_cast<size_t>(a)] * package.partitions[static_cast<size_t>(b)];
        most_pairs = std::max(most_pairs, pairs);
        add_xgmi_links(m_, nodes[i], nodes[j], count, counted, pairs);
        any = true;
      }
    if (most_pairs > 1)
      m_.findings.push_back(
          {Severity::note, "xgmi-links-shared", "",
           fmt::format("GPUs are partitions of packages and share their package's xGMI links: each of the {} pairs of partitions of two packages is taken to have its part",
                       most_pairs),
           ""});
    if (any && !counted)
      m_.findings.push_back(
          {Severity::note, "xgmi-links-unknown", "",
           "the file says which GPUs are joined by xGMI, but not by how many links: one each is assumed",
           "rocm-smi --showtopo on the machine tells more"});
  }

  const XmlDocument& xml_;
  HwlocObjects o_;
  Machine m_;
  std::vector<int> numas_;                              // nodes, of o_.numas
  std::vector<int> node_;                               // of o_.functions
  std::map<int64_t, int> gpu_of_;                       // by gp_index of OS devices
  std::vector<std::pair<std::string, int>> ambiguous_;  // host bridge, NUMA node taken
  int nvswitches_ = 0;
};

}  // namespace

Machine read_hwloc_xml(std::string_view text, const std::string& name) {
  const XmlDocument document(text, name);
  return MachineMaker(document).make();
}

}  // namespace muster::topology
