#include "topology/hwloc_objects.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "topology/cpu_set.h"

namespace muster::topology {
namespace {

constexpr size_t kMostFunctions = 4096, kMostPlaces = 200'000;

// hwloc multiplies speed, coding and lanes (GB/s in one direction).
void set_link(Pci& pci, double gb_per_s) {
  if (gb_per_s <= 0) return;
  struct Generation {
    double gigatransfers, gb_per_lane;
  };
  constexpr double kCoded = 128.0 / 130 / 8;
  constexpr Generation kGenerations[] = {{2.5, 0.25},       {5, 0.5},          {8, 8 * kCoded},
                                         {16, 16 * kCoded}, {32, 32 * kCoded}, {64, 8.0 * 242 / 256}};
  for (const int lanes : {16, 8, 4, 2, 1})
    for (const Generation& g : kGenerations)
      if (std::abs(g.gb_per_lane * lanes - gb_per_s) < 0.01 * gb_per_s) {
        pci.gigatransfers = g.gigatransfers;
        pci.lanes = lanes;
        return;
      }
  // Old versions have other factors for the slow ones.
  pci.gigatransfers = 2.5;
  pci.lanes = std::clamp(static_cast<int>(gb_per_s / 0.25), 1, 32);
}

class ObjectReader {
 public:
  explicit ObjectReader(const XmlDocument& document) : xml_(document) {}

  HwlocObjects read() {
    const pugi::xml_node root = xml_.root();
    if (std::string_view(root.name()) != "topology") xml_.refuse(root, "hwloc's files begin with <topology>");
    std::string_view version = xml_.text(root, "version").value_or("1");
    version = version.substr(0, version.find('.'));
    if (version != "1" && version != "2" && version != "3")
      xml_.refuse(root, "version \"{}\" of hwloc's format is not known: 1, 2 and 3 are",
                  printable(version, 20));
    bits_ = version == "3";
    const pugi::xml_node machine = root.child("object");
    if (!machine) xml_.refuse(root, "there is no <object>");
    for (const pugi::xml_node where : {root, machine})
      for (const pugi::xml_node i : where.children("info")) {
        const std::string_view name = i.attribute("name").value(), value = i.attribute("value").value();
        if (name == "HostName") r_.host_name = printable(value, 255);
        if (name == "Architecture") r_.arch = arch_of(value);
      }
    if (const auto allowed = cpus(machine, "allowed_cpuset")) r_.allowed = *allowed;
    object(machine, kNone, kNone);
    return std::move(r_);
  }

 private:
  static CpuArch arch_of(std::string_view name) {
    if (name == "x86_64") return CpuArch::x86_64;
    if (name == "aarch64") return CpuArch::arm64;
    return name.starts_with("ppc64") ? CpuArch::ppc64 : CpuArch::unknown;
  }

  std::optional<std::vector<int>> cpus(pugi::xml_node n, const char* attribute) const {
    const auto text = xml_.text(n, attribute);
    if (!text || trim(*text).empty()) return std::nullopt;
    auto set = parse_cpu_mask(*text);
    if (!set)
      xml_.refuse(n, "{}=\"{}\" is no set of up to {} CPUs", attribute, printable(*text, 60), kMostCpus);
    return set;
  }

  int os_index(pugi::xml_node n) const {
    const auto v = xml_.integer(n, "os_index", -1, UINT32_MAX);
    return v && *v <= INT32_MAX ? static_cast<int>(*v) : kNone;
  }

  int64_t gp_index(pugi::xml_node n) const {
    return xml_.integer(n, "gp_index", 0, INT64_MAX).value_or(kNone);
  }

  // `function`: the PCI function whose object this is within, or kNone.
  void object(pugi::xml_node n, int above, int function) {
    const std::string_view type = xml_.required_text(n, "type");
    if (type == "Bridge" || type == "PCIDev") return pci(n, type == "Bridge", above, function, {});
    if (type == "OSDev") return os_device(n, above, function);
    if (type == "Misc") return;
    if (r_.places.size() >= kMostPlaces) xml_.refuse(n, "more than {} objects", kMostPlaces);
    const auto at = r_.places.size();
    const int place = static_cast<int>(at);
    r_.places.push_back({above, r_.numas.size(), 0, r_.packages.size(), 0});
    if (type == "Package" || type == "Socket") package(n, place);
    if (type == "NUMANode" || type == "Node") numa(n, place);
    for (const pugi::xml_node child : n.children("object")) object(child, place, kNone);
    r_.places[at].last_numa = r_.numas.size();
    r_.places[at].last_package = r_.packages.size();
  }

  void package(pugi::xml_node n, int place) {
    HwlocObjects::Package p;
    p.os_index = os_index(n);
    p.gp_index = gp_index(n);
    p.place = place;
    for (const pugi::xml_node i : n.children("info")) {
      const std::string_view key = i.attribute("name").value(), value = i.attribute("value").value();
      if (key == "CPUVendor") {
        p.vendor = printable(value, 60);
        if (p.arch == CpuArch::unknown) p.arch = CpuArch::x86_64;
      }
      if (key == "CPUFamilyNumber") p.family = number(i);
      if (key == "CPUModelNumber") p.model = number(i);
      if (key == "CPUImplementer") p.arch = CpuArch::arm64;
      if (key == "CPUModel" && value.starts_with("POWER")) p.arch = CpuArch::ppc64;
    }
    r_.packages.push_back(std::move(p));
  }

  int number(pugi::xml_node info) const {
    return static_cast<int>(xml_.integer(info, "value", 0, INT32_MAX).value_or(kNone));
  }

  void numa(pugi::xml_node n, int place) {
    HwlocObjects::NumaNode node;
    node.place = place;
    node.numa.os_index = os_index(n);
    node.numa.cpus = cpus(n, "cpuset").value_or(std::vector<int>());
    node.numa.memory_bytes = static_cast<uint64_t>(xml_.integer(n, "local_memory", 0, INT64_MAX).value_or(0));
    r_.numas.push_back(std::move(node));
  }

  void pci(pugi::xml_node n, bool bridge, int place, int parent, std::string root) {
    if (bridge && xml_.text(n, "bridge_type").value_or("").starts_with("0-")) {
      root = root_name(n);
      for (const pugi::xml_node child : n.children("object")) below(child, place, kNone, root);
      return;
    }
    if (r_.functions.size() >= kMostFunctions) xml_.refuse(n, "more than {} PCI functions", kMostFunctions);
    HwlocObjects::Function f;
    const std::string_view id = xml_.required_text(n, "pci_busid");
    const auto address = PciAddress::parse(id);
    if (!address) xml_.refuse(n, "pci_busid=\"{}\" is no PCI address", printable(id, 60));
    f.pci.pci.address = *address;
    read_type(n, f.pci.pci);
    set_link(f.pci.pci, xml_.real(n, "pci_link_speed", 0, 1e6).value_or(0));
    f.pci.role = bridge ? PciRole::bridge : role_of(f.pci.pci);
    f.pci.parent = parent;
    if (parent == kNone) {
      f.pci.root = std::move(root);
      f.pci.numa = place;
    }
    f.gp_index = gp_index(n);
    f.element = n;
    const int here = static_cast<int>(r_.functions.size());
    r_.functions.push_back(std::move(f));
    for (const pugi::xml_node child : n.children("object")) below(child, place, here, {});
  }

  void below(pugi::xml_node n, int place, int parent, std::string root) {
    const std::string_view type = xml_.required_text(n, "type");
    if (type == "Bridge" || type == "PCIDev") pci(n, type == "Bridge", place, parent, std::move(root));
    if (type == "OSDev") os_device(n, place, parent);
  }

  // "pci0000:17" of bridge_pci="0000:[17-1b]", as the kernel calls it.
  std::string root_name(pugi::xml_node n) const {
    const std::string_view range = xml_.text(n, "bridge_pci").value_or("");
    const size_t bracket = range.find(":["), dash = range.find('-');
    if (bracket == range.npos || dash == range.npos || dash < bracket)
      return fmt::format("host bridge at {}", xml_.where(n));
    return printable(
        fmt::format("pci{}:{}", range.substr(0, bracket), range.substr(bracket + 2, dash - bracket - 2)), 40);
  }

  // "0604 [8086:1bbc] [1028:0b74] 11": class, vendor and device, the same of the subsystem, revision.
  void read_type(pugi::xml_node n, Pci& pci) const {
    const auto text = xml_.text(n, "pci_type");
    if (!text) return;
    const std::vector<std::string_view> parts = split(*text, ' ');
    const auto hex = [&](std::string_view digits) {
      const auto v = digits.size() == 4 ? parse_c_integer(fmt::format("0x{}", digits)) : std::nullopt;
      if (!v || *v < 0)
        xml_.refuse(n, "pci_type=\"{}\" is not like \"0302 [10de:2330] [10de:16c1] a1\"",
                    printable(*text, 60));
      return static_cast<uint16_t>(*v);
    };
    const auto pair = [&](std::string_view part, uint16_t* vendor, uint16_t* device) {
      *vendor = hex(part.substr(std::min<size_t>(1, part.size()), 4));
      *device = hex(part.substr(std::min<size_t>(6, part.size()), 4));
    };
    pci.class_code = static_cast<uint32_t>(hex(parts[0])) << 8;
    if (parts.size() < 2) hex("");
    pair(parts[1], &pci.vendor, &pci.device);
    if (parts.size() > 2) pair(parts[2], &pci.subsystem_vendor, &pci.subsystem_device);
  }

  void os_device(pugi::xml_node n, int place, int function) {
    HwlocObjects::OsDevice d;
    d.name = printable(xml_.text(n, "name").value_or(""), 255);
    d.gp_index = gp_index(n);
    d.function = function;
    d.place = place;
    for (const pugi::xml_node i : n.children("info"))
      d.info.try_emplace(i.attribute("name").value(), i.attribute("value").value());
    if (const auto subtype = xml_.text(n, "subtype")) d.info.try_emplace("Backend", *subtype);
    const int64_t type = xml_.integer(n, "osdev_type", 0, INT32_MAX).value_or(0);
    // Up to version 2 a number (1 GPU, 2 network, 3 OpenFabrics, 5 coprocessor), then bits (4, 16, 32, 8).
    const bool gpu = bits_ ? (type & (4 | 8)) != 0 : type == 1 || type == 5;
    const bool openfabrics = bits_ ? (type & 32) != 0 : type == 3;
    // Some files say version 3 and have the older numbers; only network devices have an address.
    const bool network = (bits_ ? (type & 16) != 0 : type == 2) || d.info.contains("Address");
    using Device = HwlocObjects::Device;
    if (openfabrics || d.name.starts_with("mlx4_") || d.name.starts_with("mlx5_"))
      d.device = Device::openfabrics;
    else if (network)
      d.device = Device::network;
    else if (gpu)
      d.device = Device::gpu;
    if (d.device != Device::other && !d.name.empty()) {
      if (r_.devices.size() >= kMostFunctions) xml_.refuse(n, "more than {} devices", kMostFunctions);
      r_.devices.push_back(std::move(d));
    }
  }

  const XmlDocument& xml_;
  HwlocObjects r_;
  bool bits_ = false;
};

}  // namespace

HwlocObjects read_hwloc_objects(const XmlDocument& document) { return ObjectReader(document).read(); }

}  // namespace muster::topology
