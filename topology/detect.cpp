#include "topology/detect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/host.h"
#include "base/text.h"
#include "topology/cpu_set.h"
#include "topology/detect_cpus.h"
#include "topology/detect_gpus.h"
#include "topology/detect_hwloc.h"
#include "topology/detect_network.h"
#include "topology/detect_pci.h"
#include "topology/detect_verbs.h"
#include "topology/environment.h"
#include "topology/gpu_chips.h"
#include "topology/nvlink_fabric.h"

namespace muster::topology {
namespace {

constexpr uint16_t kAmazon = 0x1d0f;

class Detector {
 public:
  explicit Detector(const DetectOptions& options) : options_(options), system_(options.root) {}

  Machine detect() {
    m_.name = system_.is_this_machine()
                  ? host_name()
                  : printable(system_.text("/proc/sys/kernel/hostname").value_or(""), 255);
    const std::optional<HwlocView> hwloc = ask_hwloc();
    add_cpus(hwloc);
    network_ = read_network_devices(system_);
    add_verbs(network_, ask(ask_verbs, options_.verbs, "libibverbs.so.1"), m_.findings);
    functions_ = read_pci_functions(system_);
    if (hwloc) add_hwloc_functions(functions_, hwloc->functions, m_.findings);
    const NvmlAnswer nvml = ask(ask_nvml, options_.nvml, "libnvidia-ml.so.1");
    choose_roles(nvml);
    look_at_links();
    place_roots();
    add_tree();
    add_nvml(m_, nvml, functions_);
    add_ports();
    number_gpus(m_);
    recognise_chips(m_);
    if (options_.visible_gpus) hide_gpus(m_, *options_.visible_gpus);
    assume_nvlinks(m_, "the driver");
    examine_environment(m_, system_, functions_);
    complete(m_);
    validate(m_);
    return std::move(m_);
  }

 private:
  void find(Severity severity, std::string id, std::string where, std::string text, std::string remedy) {
    m_.findings.push_back({severity, std::move(id), std::move(where), std::move(text), std::move(remedy)});
  }

  void add_cpus(const std::optional<HwlocView>& hwloc) {
    CpuSide cpus = read_cpus(system_);
    m_.findings = std::move(cpus.findings);
    if (hwloc) add_hwloc_cpus(cpus, hwloc->cpus, m_.findings);
    for (Numa& n : cpus.numas) {
      const int number = n.os_index;
      const std::string name = number == kNone ? "CPUs without NUMA node" : fmt::format("NUMA{}", number);
      node_of_numa_[number] =
          m_.add({.kind = Kind::numa, .name = name, .detail = std::move(n), .made_up = cpus.made_up});
    }
    for (const auto& [part, whole] : cpus.merged) node_of_numa_[part] = node_of_numa_[whole];
  }

  // hwloc takes its own way through sysfs, and asks the CPU and the PCI.
  std::optional<HwlocView> ask_hwloc() const {
    return system_.is_this_machine() || !options_.hwloc_xml.empty() ? look_by_hwloc(options_.hwloc_xml) : std::nullopt;
  }

  // A library that options name, or on this machine the usual one.
  template <class Answer>
  Answer ask(Answer (*library)(const std::string&), const std::string& named, const char* usual) const {
    if (!named.empty()) return library(named);
    return system_.is_this_machine() ? library(usual) : Answer{};
  }

  int function_at(const std::optional<PciAddress>& address) const {
    if (!address) return kNone;
    const auto it = std::lower_bound(
        functions_.begin(), functions_.end(), *address,
        [](const SystemFunction& f, const PciAddress& a) { return f.function.pci.address < a; });
    return it != functions_.end() && it->function.pci.address == *address
               ? static_cast<int>(it - functions_.begin())
               : kNone;
  }
  SystemFunction& at(int i) { return functions_[static_cast<size_t>(i)]; }

  // What a device is shows in what the kernel made of it, more surely than in its class.
  void choose_roles(const NvmlAnswer& nvml) {
    std::set<int> used;
    const auto is_nic = [&](const Seat& seat) {
      const int f = function_at(seat.pci);
      if (f == kNone) return;
      used.insert(f);
      if (at(f).function.role == PciRole::other) at(f).function.role = PciRole::nic;
    };
    for (const RdmaDevice& d : network_.rdma) {
      is_nic(d.seat);
      if (const int f = function_at(d.seat.pci); f != kNone) rdma_functions_.insert(f);
    }
    for (const NetDevice& d : network_.net) is_nic(d.seat);
    for (const NvmlGpu& g : nvml.gpus)
      if (const int f = function_at(g.address); f != kNone) at(f).function.role = PciRole::gpu;
    for (size_t f = 0; f < functions_.size(); ++f)
      if (functions_[f].is_virtual_function && functions_[f].function.role == PciRole::nic &&
          !used.contains(static_cast<int>(f)))
        functions_[f].function.role = PciRole::other;  // a spare one, for a virtual machine
  }

  bool is_fast(int f) { return at(f).function.role == PciRole::gpu || rdma_functions_.contains(f); }

  void look_at_links() {
    std::set<int> implausible;
    for (int f = 0; f < static_cast<int>(functions_.size()); ++f) {
      if (!is_fast(f)) continue;
      for (int up = f; up != kNone; up = at(up).function.parent)
        if (is_implausible(at(up).function.pci.gigatransfers, at(up).function.pci.lanes))
          implausible.insert(up);
      if (!implausible.contains(f)) tell_if_slow(f);
    }
    for (const int f : implausible) {
      Pci& pci = at(f).function.pci;
      if (f == *implausible.begin())
        find(Severity::note, "implausible-pci-link", pci.address.text(),
             fmt::format("{} links to GPUs or RDMA cards say {} GT/s x{}, as virtual machines do: taken as "
                         "unknown",
                         implausible.size(), pci.gigatransfers, pci.lanes),
             "Describe the real machine in a topology file (NCCL_TOPO_FILE)");
      pci.gigatransfers = 0;
      pci.lanes = 0;
    }
  }

  void tell_if_slow(int f) {
    const SystemFunction& d = at(f);
    const int parent = d.function.parent;
    const auto least = [](auto a, auto b) { return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b); };
    const int lanes = least(d.most_lanes, parent == kNone ? 0 : at(parent).most_lanes);
    const double gt =
        least(d.function.pci.gigatransfers, parent == kNone ? 0 : at(parent).function.pci.gigatransfers);
    const std::string where = d.function.pci.address.text();
    const bool gpu = d.function.role == PciRole::gpu;
    if (d.now_lanes > 0 && d.now_lanes < lanes)
      find(
          Severity::warning, "degraded-pci-link", where,
          fmt::format("this {} runs on {} of {} PCI lanes", gpu ? "GPU" : "network card", d.now_lanes, lanes),
          "Reseat the card or its riser, and look at the slot's setting in the firmware (bifurcation)");
    if (d.now_gigatransfers > 0 && d.now_gigatransfers < gt)
      find(
          gpu ? Severity::note : Severity::warning, "degraded-pci-link", where,
          fmt::format("this {}'s PCI link is at {} of {} GT/s{}", gpu ? "GPU" : "network card",
                      d.now_gigatransfers, gt, gpu ? ", as idle GPUs may be: the full speed is assumed" : ""),
          gpu ? "Look again under load: nvidia-smi -q -d PERFORMANCE, or lspci -vv"
              : "Reseat the card or its riser, and look at the slot's speed in the firmware");
  }

  // The NUMA node that the system puts a function at; kNone: it doesn't say, or nonsense.
  int numa_of(const SystemFunction& f) const {
    const auto it = node_of_numa_.find(f.numa);
    if (f.numa != kNone && it != node_of_numa_.end()) return it->second;
    int found = kNone;
    for (const int n : m_.all(Kind::numa)) {
      if (f.near_cpus.empty() || !contains_all(m_.numa(n).cpus, f.near_cpus)) continue;
      if (found != kNone) return kNone;
      found = n;
    }
    return found;
  }

  // A host bridge is where its devices say, those first that matter.
  void place_roots() {
    struct Root {
      int numa = kNone;
      bool matters = false;
      std::string said;  // by a device that doesn't know
      bool nonsense = false;
    };
    std::map<std::string, Root> roots;
    const auto root_of = [&](int f) {
      while (at(f).function.parent != kNone) f = at(f).function.parent;
      return at(f).function.root;
    };
    for (const bool important : {true, false})
      for (int f = 0; f < static_cast<int>(functions_.size()); ++f) {
        const PciRole role = at(f).function.role;
        if ((role == PciRole::gpu || role == PciRole::nic) != important) continue;
        Root& root = roots[root_of(f)];
        root.matters = root.matters || important;
        const int numa = numa_of(at(f));
        if (root.numa == kNone) root.numa = numa;
        const bool nonsense = !at(f).numa_text.empty() && at(f).numa_text != "-1" &&
                              (at(f).numa == kNone || !node_of_numa_.contains(at(f).numa));
        if (important && nonsense && !root.nonsense) {
          root.nonsense = true;
          root.said = at(f).numa_text;
        }
      }
    const std::vector<int> numas = m_.all(Kind::numa);
    for (auto& [name, root] : roots) {
      const bool known = root.numa != kNone;
      if (!known) root.numa = numas[0];
      if (!root.matters || (numas.size() == 1 && !root.nonsense)) continue;
      const std::string_view remedy =
          "In a virtual machine give the guest's devices NUMA nodes; on hardware update the firmware; or "
          "name the nodes in a topology file (NCCL_TOPO_FILE)";
      if (root.nonsense)
        find(Severity::warning, "numa-implausible", name,
             fmt::format(
                 "numa_node of devices here is \"{}\", which is no NUMA node of this machine: {} is {}",
                 printable(root.said, 40), m_[root.numa].name, known ? "taken by other signs" : "assumed"),
             std::string(remedy));
      else if (!known)
        find(Severity::note, "numa-unknown", name,
             fmt::format("the system doesn't tell which NUMA node devices here are near to: {} is assumed",
                         m_[root.numa].name),
             std::string(remedy));
    }
    for (SystemFunction& f : functions_)
      if (f.function.parent == kNone) f.function.numa = roots[f.function.root].numa;
  }

  void add_tree() {
    std::vector<PciFunction> list;
    list.reserve(functions_.size());
    for (const SystemFunction& f : functions_) list.push_back(f.function);
    node_ = add_pci_tree(m_, list);
    int switches = 0;
    for (const PciFunction& f : list) switches += f.role == PciRole::nvswitch;
    if (switches > 0) set_nvswitches(m_, switches);
  }

  // The node of a device's card, made where it isn't on the PCI.
  int card_of(const Seat& seat, const std::string& name) {
    if (const int f = function_at(seat.pci); f != kNone)
      if (const int node = node_[static_cast<size_t>(f)]; node != kNone && m_[node].kind == Kind::nic)
        return node;
    const auto it = node_of_numa_.find(seat.numa);
    const bool known = seat.numa != kNone && it != node_of_numa_.end();
    const std::vector<int> numas = m_.all(Kind::numa);
    if (!known && numas.size() > 1)
      find(Severity::note, "numa-unknown", name,
           fmt::format("the system doesn't tell which NUMA node it is near to: {} is assumed",
                       m_[numas[0]].name),
           "");
    return m_.add({.kind = Kind::nic,
                   .name = fmt::format("card of {}", name),
                   .parent = known ? it->second : numas[0],
                   .detail = Nic{}});
  }

  void add_ports() {
    for (const RdmaDevice& d : network_.rdma) {
      const int card = card_of(d.seat, d.name);
      std::get<Nic>(m_[card].detail).guid = d.guid;
      const Pci pci = m_[card].pci.value_or(Pci{});
      std::vector<std::string> interfaces;
      for (const NetDevice& n : network_.net)
        if (n.seat.pci && n.seat.pci == d.seat.pci) interfaces.push_back(n.name);
      for (const RdmaPort& p : d.ports) {
        Port port{.device = d.name,
                  .number = p.number,
                  .network = network_of(d, p, pci),
                  .gbit_per_s = p.gbit_per_s,
                  .guid = d.guid,
                  .interface = p.interface,
                  .up = p.up};
        if (p.gids == 0 && p.link_layer == "Ethernet")
          find(Severity::warning, "gid-table-empty", d.name, "its port has no table of addresses (GIDs): RoCE can't be used",
               "Give its network interface an address, and look at ibv_devinfo -v");
        if (port.interface.empty() && interfaces.size() == 1 && d.ports.size() == 1)
          port.interface = interfaces[0];
        m_.add({.kind = Kind::port,
                .name = p.number == 1 ? d.name : fmt::format("{}:{}", d.name, p.number),
                .parent = card,
                .detail = std::move(port)});
      }
    }
    for (const NetDevice& n : network_.net) {
      if (const int f = function_at(n.seat.pci); f != kNone && rdma_functions_.contains(f))
        continue;  // the same ports
      const int card = card_of(n.seat, n.name);
      Port port{.device = n.name,
                .network = n.infiniband ? Network::infiniband : Network::ethernet,
                .gbit_per_s = n.gbit_per_s,
                .interface = n.name,
                .up = n.up};
      for (const int p : m_.all(Kind::port)) port.number += m_[p].parent == card;
      m_.add({.kind = Kind::port, .name = n.name, .parent = card, .detail = std::move(port)});
    }
    if (network_.left_out > 0)
      find(Severity::note, "interfaces-left-out", "",
           fmt::format(
               "{} network interfaces have no card of their own (virtual ones, bridges, USB): left out",
               network_.left_out),
           "");
  }

  static Network network_of(const RdmaDevice& d, const RdmaPort& p, const Pci& pci) {
    constexpr int kIwarp = 4;  // is RDMA over TCP: no RoCE
    if (pci.vendor == kAmazon) return Network::efa;
    if (d.node_type == kIwarp) return Network::ethernet;
    if (p.link_layer == "InfiniBand") return Network::infiniband;
    if (p.link_layer == "Ethernet") return Network::roce;
    return pci.class_code >> 8 == 0x0207 ? Network::infiniband : Network::unknown;
  }

  const DetectOptions& options_;
  SystemFiles system_;
  Machine m_;
  NetworkDevices network_;
  std::vector<SystemFunction> functions_;
  std::vector<int> node_;            // of functions_
  std::map<int, int> node_of_numa_;  // by the system's number
  std::set<int> rdma_functions_;
};

}  // namespace

Machine detect(const DetectOptions& options) { return Detector(options).detect(); }

}  // namespace muster::topology
