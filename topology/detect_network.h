// Network devices of a running machine, as sysfs lists them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/machine.h"
#include "topology/system_files.h"

namespace muster::topology {

// Where a device hangs. Neither: somewhere that isn't PCI, such as a virtual machine's own bus.
struct Seat {
  std::optional<PciAddress> pci;
  int numa = kNone;  // the system's number of the NUMA node, where it says one
};

struct RdmaPort {
  int number = 1;
  Answer3 up = Answer3::unknown;
  double gbit_per_s = 0;
  std::string link_layer;  // "InfiniBand", "Ethernet"; empty: not said
  std::string interface;
  std::optional<int> gids;  // entries of its table of addresses
};

struct RdmaDevice {
  std::string name;
  Seat seat;
  int node_type = 0;  // the kernel's number: 1 channel adapter, 4 iWARP card; 0: unknown
  std::string guid;  // of the card, hexadecimal with 0x; empty: unknown
  std::vector<RdmaPort> ports;
};

struct NetDevice {
  std::string name;
  Seat seat;
  double gbit_per_s = 0;
  Answer3 up = Answer3::unknown;
  bool infiniband = false;  // IP over InfiniBand
};

struct NetworkDevices {
  std::vector<RdmaDevice> rdma;
  std::vector<NetDevice> net;
  int left_out = 0;  // network interfaces without hardware of their own (veth, bridges), and those on USB
};

NetworkDevices read_network_devices(const SystemFiles& system);

// The last PCI address of "/sys/devices/pci0000:00/0000:00:01.0/virtio1": the function that a device belongs
// to.
std::optional<PciAddress> pci_address_in(std::string_view device_path);

}  // namespace muster::topology
