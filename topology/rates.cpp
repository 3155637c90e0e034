#include "topology/rates.h"

namespace muster::topology {

Rate nvlink_rate(int sm) {
  if (sm >= 100) return {40.1, Source::table};
  if (sm >= 90) return {20.6, Source::table};
  if (sm == 86) return {12, Source::table};
  if (sm == 70) return {22.2, Source::table};
  if (sm > 70) return {20, Source::table};
  if (sm >= 60) return {18, Source::table};
  return {20, Source::assumed};
}

Rate nvswitch_link_rate(int sm) { return sm == 70 ? Rate{20, Source::table} : nvlink_rate(sm); }

double nvlink_data_sheet_rate(int sm) { return sm >= 100 ? 50 : sm == 86 ? 14.0625 : sm >= 70 ? 25 : sm >= 60 ? 20 : 25; }

int nvlink_ports(int sm) {
  switch (sm) {
    case 60: return 4;
    case 70: return 6;
    case 75: return 2;  // TU102's; most others of it have none
    case 80: return 12;
    case 86: return 4;  // GA102's
    default: return sm >= 90 && sm < 120 ? 18 : 0;
  }
}

// Of one xGMI link, as RCCL's planner has them (topo.h of ROCm 6): 24 GB/s up to MI100, 36 of MI200, 48 of MI300 and MI350.
Rate xgmi_rate(int gcn) {
  if (gcn >= 940) return {48, Source::table};
  if (gcn >= 910) return {36, Source::table};
  if (gcn >= 906) return {24, Source::table};
  return {24, Source::assumed};
}

Rate cpu_interconnect_rate(CpuArch arch, const std::string& vendor, int family, int model) {
  switch (arch) {
    case CpuArch::ppc64: return {32, Source::table};
    case CpuArch::arm64: return {6, Source::table};
    case CpuArch::x86_64: break;
    case CpuArch::unknown: return {10, Source::assumed};
  }
  if (vendor == "AuthenticAMD") return {16, Source::table};
  if (vendor == "CentaurHauls" || vendor.find("Shanghai") != std::string::npos)
    return {family == 7 && model == 0x5b ? 9.0 : 6.0, Source::table};
  if (vendor != "GenuineIntel") return {10, Source::assumed};
  if (family != 6) return {10, Source::assumed};
  if (model >= 0xcf) return {40, Source::table};
  if (model >= 0x8f) return {22, Source::table};
  if (model >= 0x55) return {10, Source::table};
  return {6, Source::table};
}

// The same table: NCCL joins all NUMA nodes alike, in one package or not.
Rate package_rate(CpuArch arch, const std::string& vendor, int family, int model) {
  return cpu_interconnect_rate(arch, vendor, family, model);
}

Rate c2c_rate() { return {225, Source::assumed}; }  // half of the 450 GB/s per direction that NVIDIA states for Grace Hopper
Rate default_network_rate() { return {12, Source::assumed}; }

// What is left of a hop when NCCL's are subtracted from each other (its planner's table: 0.6, 1.0 us for the smallest
// message over NVLink and PCIe); a socket crossing costs about what a cache line does, 0.1 to 0.2 us.
double nvlink_latency() { return 0.6; }
double pcie_latency() { return 1.0; }
double cpu_interconnect_latency() { return 0.2; }

}  // namespace muster::topology
