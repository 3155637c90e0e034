// What one host is made of: a graph of devices and the links that join them. Readers and detectors make one, everything
// else reads it. A value: copyable, without threads or handles.
//
//   numa ----cpu interconnect---- numa          NUMA nodes, each with the CPUs and memory near it
//    |                             |
//   host_bridge                   ...           where a PCI tree meets the CPU (left out by files that don't tell)
//    |
//   pci_switch --- pci_switch                   a switch is one node: its upstream port
//    |      |          |
//   gpu    gpu        nic --- port, port        a card and what it presents to the network stack
//    \______/
//   nvswitch                                    all of a host are one: every GPU has links to each of them
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "topology/finding.h"
#include "topology/pci.h"
#include "topology/rates.h"
#include "topology/source.h"

namespace muster::topology {

inline constexpr size_t kMostNumas = 1024;  // of a host, as in the kernel; each is joined with each

constexpr int kNone = -1;

enum class Kind : uint8_t { numa, host_bridge, pci_switch, gpu, nvswitch, nic, port };
std::string_view name_of(Kind k);

enum class LinkKind : uint8_t { nvlink, xgmi, c2c, pcie, cpu, network };
std::string_view name_of(LinkKind k);
constexpr bool is_nvlink_class(LinkKind k) { return k == LinkKind::nvlink || k == LinkKind::xgmi; }

enum class Network : uint8_t { unknown, infiniband, roce, ethernet, efa };
std::string_view name_of(Network n);

enum class Answer3 : uint8_t { unknown, no, yes };

struct Numa {
  int os_index = kNone;       // the system's number; kNone: it gives none
  int package = kNone;
  std::vector<int> cpus;      // OS indices, ascending
  uint64_t memory_bytes = 0;  // 0: none or unknown
  CpuArch arch = CpuArch::unknown;
  std::string vendor;         // as CPUID says it: "GenuineIntel"
  int family = kNone, model = kNone;
  bool allowed = true;        // this process may run there
};

struct Gpu {
  int index = kNone;   // the driver's number ("GPU3"), counted up where a file gives none
  int sm = 0;          // compute capability times ten; 0: unknown or not NVIDIA's
  int gcn = 0;         // AMD's architecture: 908, 910, 942; 0: not AMD's
  std::string model;   // "NVIDIA H100 80GB HBM3"
  std::string uuid;
  int rank = kNone;    // in the job whose file this is
  Answer3 gpudirect = Answer3::unknown;
  int memory_numa = kNone;  // the system's number for its memory, where that is a NUMA node of its own (Grace)
};

struct NvSwitch {
  int count = 1;       // of the host
};

struct Nic {
  std::string guid;    // hexadecimal with 0x; equal on the ports of one card; empty: unknown
};

struct Port {
  std::string device;  // "mlx5_0", "eth0"
  int number = 1;      // of the card
  int index = kNone;   // the network plugin's number
  Network network = Network::unknown;
  double gbit_per_s = 0;  // 0: unknown
  double latency_us = 0;
  std::string guid;
  std::string interface;  // the network interface that goes with it: "ib0"
  Answer3 up = Answer3::unknown;
  Answer3 gpudirect = Answer3::unknown;
  int max_connections = 0;
  bool collectives = false;  // offers in-network reductions
};

struct Node {
  Kind kind = Kind::numa;
  std::string name;    // unique in its machine: "NUMA0", "GPU3", "mlx5_1", "0000:17:00.0"
  int parent = kNone;  // what it hangs under; nvswitch and numa hang under nothing
  std::optional<Pci> pci;
  std::variant<std::monostate, Numa, Gpu, NvSwitch, Nic, Port> detail;
  bool hidden = false;  // exists, but this process can't use it
  bool made_up = false; // not in the source: added so that what is has a place to hang
};

// Joins two nodes in both directions, each with this rate.
struct Link {
  int a = kNone, b = kNone;
  LinkKind kind = LinkKind::pcie;
  int count = 1;         // lanes of a PCI link, links of a bundle
  Rate rate;             // of all of them together
  double latency_us = 0; // one way
};

struct Machine {
  std::string name;      // of the host or the machine type; may be empty
  uint64_t host_hash = 0;  // as a file gives it; 0: none
  // Not vectors, so that a reference to a node or link stays good while others are added.
  std::deque<Node> nodes;
  std::deque<Link> links;
  std::vector<Finding> findings;  // what was noticed while it was read or detected

  int add(Node node);            // its index; the name is made unique by a suffix where it is taken
  int link(Link l);              // its index
  // The PCI or network link from a node to its parent; kNone where it has no parent.
  int up_link(int node) const;

  std::vector<int> all(Kind k) const;  // indices, ascending
  int find(std::string_view wanted) const;          // by name; kNone: there is none
  int find(const PciAddress& address) const;
  int numa_of(int node) const;         // the NUMA node it hangs under, or kNone
  int nic_of(int port) const { return nodes[static_cast<size_t>(port)].parent; }
  int gpu_with_index(int index) const;

  const Node& operator[](int i) const { return nodes[static_cast<size_t>(i)]; }
  Node& operator[](int i) { return nodes[static_cast<size_t>(i)]; }
  const Numa& numa(int i) const { return std::get<Numa>((*this)[i].detail); }
  const Gpu& gpu(int i) const { return std::get<Gpu>((*this)[i].detail); }
  const Nic& nic(int i) const { return std::get<Nic>((*this)[i].detail); }
  const Port& port(int i) const { return std::get<Port>((*this)[i].detail); }
};

// Joins what a reader may leave open, in this order: NUMA nodes each with each (cpu_interconnect_rate, or package_rate
// in one package), roots of PCI trees without a NUMA node to the first (Node::made_up one if there is none), the links
// that nodes have to their parents (pcie_rate of the slower end), and the fabric of GPUs. Links that exist are kept.
void complete(Machine& m);

// Throws internal_error if indices, details or parents don't fit: a reader's mistake.
void validate(const Machine& m);

}  // namespace muster::topology
