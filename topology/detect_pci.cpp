#include "topology/detect_pci.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "topology/cpu_set.h"

namespace muster::topology {
namespace {

uint32_t id(const SystemFiles& system, const std::string& path, uint32_t most) {
  const auto v = system.integer(path);
  return v && *v >= 0 && *v <= most ? static_cast<uint32_t>(*v) : 0;
}

int lanes(const SystemFiles& system, const std::string& path) {
  const auto v = system.integer(path);
  return v && *v > 0 && *v <= 32 ? static_cast<int>(*v) : 0;  // 0, 63 and 255 stand for unknown
}

SystemFunction read(const SystemFiles& system, const std::string& name, PciAddress address) {
  SystemFunction s;
  s.folder = "/sys/bus/pci/devices/" + name;
  const auto file = [&](std::string_view what) { return fmt::format("{}/{}", s.folder, what); };
  Pci& pci = s.function.pci;
  pci.address = address;
  pci.class_code = id(system, file("class"), 0xffffff);
  pci.vendor = static_cast<uint16_t>(id(system, file("vendor"), 0xffff));
  pci.device = static_cast<uint16_t>(id(system, file("device"), 0xffff));
  pci.subsystem_vendor = static_cast<uint16_t>(id(system, file("subsystem_vendor"), 0xffff));
  pci.subsystem_device = static_cast<uint16_t>(id(system, file("subsystem_device"), 0xffff));
  s.now_gigatransfers = parse_link_speed(system.text(file("current_link_speed")).value_or(""));
  s.now_lanes = lanes(system, file("current_link_width"));
  s.most_lanes = lanes(system, file("max_link_width"));
  pci.gigatransfers = parse_link_speed(system.text(file("max_link_speed")).value_or(""));
  if (pci.gigatransfers == 0) pci.gigatransfers = s.now_gigatransfers;
  pci.lanes = s.now_lanes != 0 ? s.now_lanes : s.most_lanes;
  const auto numa = system.integer(file("numa_node"), &s.numa_text);
  if (numa && *numa >= 0 && *numa < 65536) s.numa = static_cast<int>(*numa);
  auto cpus = parse_cpu_list(system.text(file("local_cpulist")).value_or("?"));
  if (!cpus) cpus = parse_cpu_mask(system.text(file("local_cpus")).value_or("?"));
  if (cpus) s.near_cpus = std::move(*cpus);
  s.is_virtual_function = system.exists(file("physfn"));
  s.function.role = role_of(pci);
  return s;
}

}  // namespace

std::vector<SystemFunction> read_pci_functions(const SystemFiles& system) {
  std::vector<SystemFunction> all;
  std::map<PciAddress, int> index;
  for (const std::string& name : system.list("/sys/bus/pci/devices"))
    if (const auto address = PciAddress::parse(name)) all.push_back(read(system, name, *address));
  std::sort(all.begin(), all.end(), [](const SystemFunction& a, const SystemFunction& b) {
    return a.function.pci.address < b.function.pci.address;
  });
  for (size_t i = 0; i < all.size(); ++i) index[all[i].function.pci.address] = static_cast<int>(i);

  // The path of the device's folder goes through the bridges. Where it is none (a copy of /sys without
  // links), the buses behind bridges say the same.
  std::map<std::pair<uint32_t, int64_t>, int> bridge_to;
  for (size_t i = 0; i < all.size(); ++i)
    if (const auto bus = system.integer(all[i].folder + "/secondary_bus_number"); bus && *bus > 0)
      bridge_to[{all[i].function.pci.address.domain, *bus}] = static_cast<int>(i);
  for (size_t i = 0; i < all.size(); ++i) {
    PciFunction& f = all[i].function;
    const std::string path = system.resolve(all[i].folder).value_or("");
    std::optional<PciAddress> above;
    bool placed = false;
    for (const std::string_view part : split(path, '/')) {
      if (part.starts_with("pci") && part.find(':') != part.npos) {
        f.root = part;
        above.reset();
        placed = true;
      } else if (const auto a = PciAddress::parse(part); a && *a != f.pci.address && index.contains(*a)) {
        above = a;
      }
    }
    if (above) {
      f.parent = index.at(*above);
    } else if (!placed) {
      f.root = fmt::format("pci{:04x}:{:02x}", f.pci.address.domain, f.pci.address.bus);
      if (const auto it = bridge_to.find({f.pci.address.domain, f.pci.address.bus});
          it != bridge_to.end() && it->second != static_cast<int>(i))
        f.parent = it->second;
    }
  }
  // Nothing that files say may make a circle: the way up ends, or it is cut.
  for (size_t i = 0; i < all.size(); ++i) {
    size_t steps = 0;
    for (int up = all[i].function.parent; up != kNone; up = all[static_cast<size_t>(up)].function.parent)
      if (++steps > all.size()) {
        all[i].function.parent = kNone;
        break;
      }
  }
  return all;
}

}  // namespace muster::topology
