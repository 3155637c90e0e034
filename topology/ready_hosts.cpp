// Hosts that have names, as their vendors describe them: the cards that are for traffic between GPUs, without
// those for storage and administration. Where files of real machines of these types are known, links, cards and their
// places are the same (topology_agreement_test).
#include <array>

#include "topology/host_description.h"

namespace muster::topology {
namespace {

constexpr std::array<ReadyHost, 9> kReady = {{
    {"dgx-1v", "NVIDIA DGX-1 with 8 V100: hybrid cube mesh, 4 PCI switches with 2 GPUs and an EDR card each",
     R"({"gpus": 8, "gpu": "V100",
         "nvlink_pairs": [[0,1,1],[0,2,1],[0,3,2],[0,4,2],[1,2,2],[1,3,1],[1,5,2],[2,3,2],[2,6,1],[3,7,1],
                          [4,5,1],[4,6,1],[4,7,2],[5,6,2],[5,7,1],[6,7,2]],
         "nics": 4, "network": "infiniband", "gbit_per_s": 100, "numa_nodes": 2, "cpu": "broadwell",
         "pci_generation": 3, "gpus_per_pci_switch": 2, "host_bridges": 2})"},
    {"dgx-a100",
     "NVIDIA DGX A100: 8 A100 on 6 NVSwitches, 8 HDR cards, 2 EPYC processors with 4 NUMA nodes each",
     R"({"gpus": 8, "gpu": "A100", "nvswitches": 6, "nvlinks_per_gpu": 12,
         "nics": 8, "network": "infiniband", "gbit_per_s": 200, "numa_nodes": 8, "packages": 2, "cpu": "epyc",
         "pci_generation": 4, "gpus_per_pci_switch": 2})"},
    {"dgx-h100", "NVIDIA DGX H100: 8 H100 on 4 NVSwitches, a 400 Gbit/s card beside each",
     R"({"gpus": 8, "gpu": "H100", "nvswitches": 4, "nvlinks_per_gpu": 18,
         "nics": 8, "network": "infiniband", "gbit_per_s": 400, "numa_nodes": 2, "cpu": "sapphire-rapids",
         "pci_generation": 5, "gpus_per_pci_switch": 1})"},
    {"hgx-h200", "a host on NVIDIA HGX H200: 8 H200 on 4 NVSwitches, a 400 Gbit/s card beside each",
     R"({"gpus": 8, "gpu": "H200", "nvswitches": 4, "nvlinks_per_gpu": 18,
         "nics": 8, "network": "infiniband", "gbit_per_s": 400, "numa_nodes": 2, "cpu": "emerald-rapids",
         "pci_generation": 5, "gpus_per_pci_switch": 1})"},
    {"dgx-b200", "NVIDIA DGX B200: 8 B200 on 2 NVSwitches, a 400 Gbit/s card beside each",
     R"({"gpus": 8, "gpu": "B200", "nvswitches": 2, "nvlinks_per_gpu": 18,
         "nics": 8, "network": "infiniband", "gbit_per_s": 400, "numa_nodes": 2, "cpu": "emerald-rapids",
         "pci_generation": 5, "gpus_per_pci_switch": 1})"},
    {"gb200-nvl72",
     "a compute tray of NVIDIA GB200 NVL72: 4 GPUs on 2 Grace processors; its 9 NVLink switch trays with 18 "
     "switches join "
     "18 of them (say so by \"hosts_per_nvlink_domain\": 18)",
     R"({"gpus": 4, "gpu": "GB200", "nvswitches": 18, "nvlinks_per_gpu": 18, "c2c": true,
         "nics": 4, "network": "infiniband", "gbit_per_s": 400, "numa_nodes": 2, "cpu": "arm",
         "pci_generation": 5, "host_bridges": 4})"},
    {"aws-p4d", "Amazon EC2 p4d.24xlarge: 8 A100 on 6 NVSwitches, 4 EFA cards of 100 Gbit/s",
     R"({"gpus": 8, "gpu": "A100", "nvswitches": 6, "nvlinks_per_gpu": 12,
         "nics": 4, "network": "efa", "gbit_per_s": 100, "numa_nodes": 2, "cpu": "skylake",
         "pci_generation": 4, "gpus_per_pci_switch": 2, "nic_pci_generation": 3})"},
    {"aws-p5", "Amazon EC2 p5.48xlarge: 8 H100 on 4 NVSwitches, 32 EFA cards of 100 Gbit/s",
     R"({"gpus": 8, "gpu": "H100", "nvswitches": 4, "nvlinks_per_gpu": 18,
         "nics": 32, "network": "efa", "gbit_per_s": 100, "numa_nodes": 2, "cpu": "epyc",
         "pci_generation": 5, "gpus_per_pci_switch": 1, "nic_pci_generation": 4, "nic_pci_lanes": 8})"},
    {"rtx4090-8", "a server with 8 RTX 4090 without NVLink, 4 on each of two processors, one 100 Gbit/s card",
     R"({"gpus": 8, "gpu": "RTX 4090",
         "nics": 1, "network": "roce", "gbit_per_s": 100, "numa_nodes": 2, "cpu": "epyc",
         "pci_generation": 4, "host_bridges": 8})"},
}};

}  // namespace

std::span<const ReadyHost> ready_hosts() { return kReady; }

std::optional<Machine> ready_host(std::string_view name) {
  for (const ReadyHost& r : kReady)
    if (r.name == name) {
      const JsonDocument d(r.json, std::string(name));
      return build_host(read_host_description(d, d.root()), std::string(name));
    }
  return std::nullopt;
}

}  // namespace muster::topology
