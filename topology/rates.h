// What parts are known to carry, where nothing measured or read says it.
//
// Source of all but Volta's NVLinks from GPU to GPU: the tables that NCCL's planner uses (graph/topo.h of 2.18 to 2.30).
// They are what collectives reach, not what the link's data sheet promises: 20.6 of the 25 GB/s of a Hopper NVLink.
#pragma once

#include <string>

#include "topology/source.h"

namespace muster::topology {

enum class CpuArch : uint8_t { unknown, x86_64, arm64, ppc64 };

// GB/s of one NVLink in one direction, by compute capability times ten (90: Hopper); the newest known for newer ones.
// From GPU to GPU. Volta: of its 25 GB/s what headers leave, 16 bytes for each line of 128 (Foley, Danskin:
// "Ultra-Performance Pascal GPU and NVLink Interconnect", IEEE Micro 37(2), 2017); NCCL up to 2.9 counted 21 to 22.
Rate nvlink_rate(int sm);
// From GPU to NVSwitch: Volta's are 20 in NCCL's table.
Rate nvswitch_link_rate(int sm);
// The same by the data sheet, as NVML and hwloc count it: 20 (Pascal), 25 (Volta to Hopper), 14 (GA102), 50 (Blackwell).
double nvlink_data_sheet_rate(int sm);
// NVLinks that a GPU of this chip may have, by NVIDIA's descriptions of P100, V100, RTX 2080 Ti, A100, A40 and H100; 0 for
// those that have none (P40, L40, RTX 5090).
int nvlink_ports(int sm);
// Between AMD GPUs, per xGMI link, by the number of the architecture (908, 910, 942).
Rate xgmi_rate(int gcn);
// Between two sockets: UPI, Infinity Fabric and their like; `vendor` as CPUID says it.
Rate cpu_interconnect_rate(CpuArch arch, const std::string& vendor, int family, int model);
// Between NUMA nodes of one package.
Rate package_rate(CpuArch arch, const std::string& vendor, int family, int model);
// GPU to its CPU by C2C (Grace), where nothing says it.
Rate c2c_rate();
// A network port of which nothing is known: 100 Gbit/s.
Rate default_network_rate();

// One way, microseconds. Sources: rates.cpp.
double nvlink_latency();
double pcie_latency();
double cpu_interconnect_latency();

}  // namespace muster::topology
