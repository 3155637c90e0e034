#include "topology/detect_network.h"

#include <fmt/format.h>

#include <charconv>

#include "base/text.h"
#include "topology/network_names.h"

namespace muster::topology {
namespace {

// "400 Gb/sec (4X NDR)"
double rate_of(std::string_view text) {
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  return error == std::errc() && v > 0 && v < 1e6 ? v : 0;
}

Seat seat_of(const SystemFiles& system, const std::string& device, const std::string& device_path) {
  Seat s;
  s.pci = pci_address_in(device_path);
  if (const auto node = system.integer(device + "/numa_node"); node && *node >= 0 && *node < 65536)
    s.numa = static_cast<int>(*node);
  return s;
}

RdmaDevice read_rdma(const SystemFiles& system, const std::string& name) {
  const std::string folder = "/sys/class/infiniband/" + name;
  RdmaDevice d;
  d.name = name;
  d.seat = seat_of(system, folder + "/device", system.resolve(folder + "/device").value_or(""));
  d.guid = guid_of(system.text(folder + "/sys_image_guid").value_or(""));
  if (d.guid.empty()) d.guid = guid_of(system.text(folder + "/node_guid").value_or(""));
  const auto type = parse_c_integer(split(system.text(folder + "/node_type").value_or(""), ':')[0]);  // "1: CA"
  if (type && *type > 0 && *type < 100) d.node_type = static_cast<int>(*type);
  for (const std::string& number : system.list(folder + "/ports")) {
    const auto n = parse_c_integer(number);
    if (!n || *n < 1 || *n > 255) continue;
    const std::string port = fmt::format("{}/ports/{}", folder, number);
    RdmaPort p;
    p.number = static_cast<int>(*n);
    if (const auto state = system.text(port + "/state"); state && !state->empty())  // "4: ACTIVE"
      p.up = state->starts_with("4:") ? Answer3::yes : Answer3::no;
    p.gbit_per_s = rate_of(system.text(port + "/rate").value_or(""));
    p.link_layer = system.text(port + "/link_layer").value_or("");
    p.interface = printable(system.text(port + "/gid_attrs/ndevs/0").value_or(""), 32);
    if (system.exists(port + "/gids")) p.gids = static_cast<int>(system.list(port + "/gids").size());
    d.ports.push_back(std::move(p));
  }
  if (d.ports.empty()) d.ports.push_back({});
  return d;
}

}  // namespace

std::optional<PciAddress> pci_address_in(std::string_view device_path) {
  std::optional<PciAddress> last;
  for (const std::string_view part : split(device_path, '/'))
    if (part.find(':') != part.rfind(':'))  // with its domain
      if (const auto a = PciAddress::parse(part)) last = a;
  return last;
}

NetworkDevices read_network_devices(const SystemFiles& system) {
  NetworkDevices r;
  for (const std::string& name : system.list("/sys/class/infiniband"))
    r.rdma.push_back(read_rdma(system, name));
  for (const std::string& name : system.list("/sys/class/net")) {
    const std::string folder = "/sys/class/net/" + name;
    const auto device = system.resolve(folder + "/device");
    if (!device && !system.exists(folder + "/operstate")) continue;  // a file such as bonding_masters
    if (!device && name == "lo") continue;
    if (!device || device->find("/usb") != device->npos) {
      ++r.left_out;
      continue;
    }
    NetDevice d;
    d.name = name;
    d.seat = seat_of(system, folder + "/device", *device);
    if (const auto megabits = system.integer(folder + "/speed");
        megabits && *megabits > 0 && *megabits < 100'000'000)
      d.gbit_per_s = static_cast<double>(*megabits) / 1000;
    const std::string state = system.text(folder + "/operstate").value_or("");
    if (state == "up") d.up = Answer3::yes;
    if (state == "down" || state == "lowerlayerdown" || state == "notpresent") d.up = Answer3::no;
    d.infiniband = system.integer(folder + "/type").value_or(0) == 32;  // ARPHRD_INFINIBAND
    r.net.push_back(std::move(d));
  }
  return r;
}

}  // namespace muster::topology
