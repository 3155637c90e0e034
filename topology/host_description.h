// A regular host said in few words, for machines that aren't there: so many GPUs, cards, NUMA nodes, and how
// they hang together. Ready-made ones have names.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_document.h"
#include "topology/machine.h"

namespace muster::topology {

// How descriptions call networks.
inline constexpr std::array<std::pair<std::string_view, Network>, 4> kNetworkWords = {
    {{"infiniband", Network::infiniband},
     {"roce", Network::roce},
     {"ethernet", Network::ethernet},
     {"efa", Network::efa}}};

struct NvlinkPair {
  int a = 0, b = 0;  // numbers of GPUs
  int links = 1;
};

// The members that "host" may have in a cluster's description (docs/topology.md), with their defaults.
struct HostDescription {
  int gpus = 0;
  std::string gpu;  // model: "H100"
  int sm = 0;       // compute capability times ten; 0: the model's, where it is known
  int nvswitches = 0;
  int nvlinks_per_gpu = 0;               // to the NVSwitches, or without these to all other GPUs alike
  std::vector<NvlinkPair> nvlink_pairs;  // instead: which GPUs are joined, by how many links
  bool c2c = false;                      // GPUs are on their CPU's module

  int nics = 0;  // cards
  int ports_per_nic = 1;
  Network network = Network::unknown;
  double gbit_per_s = 0;  // of a port; 0: unknown
  double port_latency_us = 0;
  int nic_pci_generation = 0;  // 0: as the GPUs
  int nic_pci_lanes = 0;

  int numa_nodes = 1;
  int packages = 0;        // 0: one per NUMA node
  std::string cpu;         // "sapphire-rapids": of kCpus
  int pci_generation = 0;  // 1..6; 0: unknown
  int pci_lanes = 16;
  int gpus_per_pci_switch = 0;  // 0: no switches, GPUs and cards hang under host bridges
  int host_bridges = 0;         // 0: one per PCI switch, or per NUMA node
};

HostDescription read_host_description(const JsonDocument& document, const JsonValue& object);
// Things are spread evenly in their order: GPUs and cards over PCI switches, these over host bridges, these
// over NUMA nodes.
Machine build_host(const HostDescription& d, const std::string& name);

struct ReadyHost {
  std::string_view name;         // "dgx-h100"
  std::string_view description;  // what a person knows it as, and whose numbers these are
  std::string_view json;         // what "host" would say
};
std::span<const ReadyHost> ready_hosts();
std::optional<Machine> ready_host(std::string_view name);

}  // namespace muster::topology
