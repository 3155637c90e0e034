#include "topology/host_description.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"

namespace muster::topology {
namespace {

// The most that a description may ask for, each beyond what is built today.
constexpr int kMostDescribedGpus = 256, kMostDescribedNics = 256, kMostDescribedPorts = 8, kMostDescribedNumas = 64, kMostDescribedLinks = 64;

struct CpuModel {
  std::string_view name;
  CpuArch arch;
  const char* vendor;
  int family, model;
};
constexpr std::array<CpuModel, 8> kCpus = {{
    {"broadwell", CpuArch::x86_64, "GenuineIntel", 6, 0x4f},
    {"skylake", CpuArch::x86_64, "GenuineIntel", 6, 0x55},
    {"ice-lake", CpuArch::x86_64, "GenuineIntel", 6, 0x6a},
    {"sapphire-rapids", CpuArch::x86_64, "GenuineIntel", 6, 0x8f},
    {"emerald-rapids", CpuArch::x86_64, "GenuineIntel", 6, 0xcf},
    {"epyc", CpuArch::x86_64, "AuthenticAMD", kNone, kNone},
    {"arm", CpuArch::arm64, "ARM", kNone, kNone},
    {"power9", CpuArch::ppc64, "IBM", kNone, kNone},
}};

// Compute capabilities as NVIDIA lists them (developer.nvidia.com/cuda-gpus).
struct GpuModel {
  std::string_view name;
  int sm;
};
constexpr std::array<GpuModel, 16> kGpus = {{{"P100", 60},
                                             {"V100", 70},
                                             {"T4", 75},
                                             {"A100", 80},
                                             {"A30", 80},
                                             {"A10G", 86},
                                             {"RTX A6000", 86},
                                             {"L40S", 89},
                                             {"L4", 89},
                                             {"RTX 4090", 89},
                                             {"H100", 90},
                                             {"H200", 90},
                                             {"GH200", 90},
                                             {"B200", 100},
                                             {"GB200", 100},
                                             {"B300", 103}}};

double gigatransfers_of(int generation) {
  constexpr std::array<double, 7> kRates = {0, 2.5, 5, 8, 16, 32, 64};
  return kRates[static_cast<size_t>(generation)];
}

int compute_capability(const HostDescription& d) {
  if (d.sm) return d.sm;
  for (const GpuModel& g : kGpus)
    if (g.name == d.gpu) return g.sm;
  return 0;
}

std::string_view port_prefix(Network n) {
  switch (n) {
    case Network::infiniband:
    case Network::roce:
      return "mlx5_";
    case Network::efa:
      return "rdmap";
    case Network::ethernet:
    case Network::unknown:
      return "eth";
  }
  return "port";
}

void add_nvlinks(Machine& m, const HostDescription& d, const std::vector<int>& gpus) {
  const int sm = compute_capability(d);
  const Rate one = d.nvswitches > 0 ? nvswitch_link_rate(sm) : nvlink_rate(sm);
  const auto join = [&](int a, int b, int links) {
    m.link({a, b, LinkKind::nvlink, links, {links * one.gb_per_s, one.source}, nvlink_latency()});
  };
  if (d.nvswitches > 0) {
    const int s = m.add({.kind = Kind::nvswitch, .name = "NVSwitch", .detail = NvSwitch{d.nvswitches}});
    for (const int g : gpus) join(g, s, d.nvlinks_per_gpu);
  } else if (d.nvlinks_per_gpu > 0) {
    for (size_t b = 0; b < gpus.size(); ++b)
      for (size_t a = 0; a < b; ++a) join(gpus[a], gpus[b], d.nvlinks_per_gpu / (d.gpus - 1));
  }
  for (const NvlinkPair& p : d.nvlink_pairs)
    join(gpus[static_cast<size_t>(p.a)], gpus[static_cast<size_t>(p.b)], p.links);
}

}  // namespace

HostDescription read_host_description(const JsonDocument& document, const JsonValue& object) {
  HostDescription d;
  JsonFields f(document, object);
  f.integer("gpus", &d.gpus, 0, kMostDescribedGpus);
  f.text("gpu", &d.gpu);
  f.integer("sm", &d.sm, 10, 999);
  f.integer("nvswitches", &d.nvswitches, 0, 64);
  const JsonValue* per_gpu = f.find("nvlinks_per_gpu");
  if (per_gpu) d.nvlinks_per_gpu = static_cast<int>(document.integer(*per_gpu, 0, kMostDescribedLinks));
  if (const JsonValue* pairs = f.find("nvlink_pairs")) {
    if (per_gpu || d.nvswitches)
      document.refuse(*pairs, "is instead of 'nvlinks_per_gpu' and 'nvswitches', not beside them");
    for (const JsonValue& p : document.array(*pairs)) {
      if (!p.is_array() || p.items.size() != 3) document.refuse(p, "[GPU, GPU, LINKS] is wanted");
      const auto number = [&](size_t i, int64_t least, int64_t most) {
        return static_cast<int>(document.integer(p.items[i], least, most));
      };
      const NvlinkPair pair{number(0, 0, d.gpus - 1), number(1, 0, d.gpus - 1), number(2, 1, kMostDescribedLinks)};
      if (pair.a == pair.b) document.refuse(p, "GPU {} has no links to itself", pair.a);
      for (const NvlinkPair& o : d.nvlink_pairs)
        if (std::minmax(o.a, o.b) == std::minmax(pair.a, pair.b))
          document.refuse(p, "GPUs {} and {} are joined twice", pair.a, pair.b);
      d.nvlink_pairs.push_back(pair);
    }
  }
  if (d.nvswitches && !d.nvlinks_per_gpu)
    document.refuse(object, "'nvlinks_per_gpu' is missing: NVSwitches need links to them");
  if (!d.nvswitches && d.nvlinks_per_gpu && (d.gpus < 2 || d.nvlinks_per_gpu % (d.gpus - 1)))
    document.refuse(*per_gpu, "{} links don't go to {} other GPUs alike; say 'nvswitches' or 'nvlink_pairs'",
                    d.nvlinks_per_gpu, std::max(0, d.gpus - 1));
  f.boolean("c2c", &d.c2c);
  f.integer("nics", &d.nics, 0, kMostDescribedNics);
  f.integer("ports_per_nic", &d.ports_per_nic, 1, kMostDescribedPorts);
  f.word("network", &d.network, kNetworkWords);
  f.real("gbit_per_s", &d.gbit_per_s, 0.001, 1e5);
  f.real("port_latency_us", &d.port_latency_us, 0, 1e6);
  f.integer("nic_pci_generation", &d.nic_pci_generation, 1, 6);
  f.integer("nic_pci_lanes", &d.nic_pci_lanes, 1, 32);
  f.integer("numa_nodes", &d.numa_nodes, 1, kMostDescribedNumas);
  if (const JsonValue* p = f.find("packages")) {
    d.packages = static_cast<int>(document.integer(*p, 1, kMostDescribedNumas));
    if (d.numa_nodes % d.packages)
      document.refuse(*p, "{} packages don't hold {} NUMA nodes alike", d.packages, d.numa_nodes);
  }
  if (const JsonValue* cpu = f.find("cpu")) {
    d.cpu = document.text(*cpu);
    std::vector<std::string_view> names;
    for (const CpuModel& c : kCpus) names.push_back(c.name);
    if (std::find(names.begin(), names.end(), d.cpu) == names.end())
      document.refuse(*cpu, "\"{}\" is not known; known are {}", printable(d.cpu, 60),
                      fmt::join(names, ", "));
  }
  f.integer("pci_generation", &d.pci_generation, 1, 6);
  f.integer("pci_lanes", &d.pci_lanes, 1, 32);
  f.integer("gpus_per_pci_switch", &d.gpus_per_pci_switch, 0, kMostDescribedGpus);
  f.integer("host_bridges", &d.host_bridges, 1, kMostDescribedGpus);
  f.done();
  return d;
}

Machine build_host(const HostDescription& d, const std::string& name) {
  Machine m;
  m.name = name;
  const auto at = [](const std::vector<int>& holders, int i, int of) {
    return holders[static_cast<size_t>(i) * holders.size() / static_cast<size_t>(of)];
  };
  const double gt = gigatransfers_of(d.pci_generation);
  const double nic_gt = d.nic_pci_generation ? gigatransfers_of(d.nic_pci_generation) : gt;
  int buses = 0;  // addresses are made up, a bus per device
  const auto pci = [&](uint32_t class_code, double speed, int lanes) {
    Pci p{.class_code = class_code, .gigatransfers = speed, .lanes = lanes};
    p.address.domain = static_cast<uint32_t>(buses / 255);
    p.address.bus = static_cast<uint8_t>(1 + buses++ % 255);
    return p;
  };
  const auto add_pci = [&](Kind kind, int parent, const Pci& p, std::string node_name,
                           decltype(Node::detail) detail) {
    return m.add({.kind = kind,
                  .name = node_name.empty() ? p.address.text() : std::move(node_name),
                  .parent = parent,
                  .pci = p,
                  .detail = std::move(detail)});
  };

  std::vector<int> numas;
  for (int i = 0; i < d.numa_nodes; ++i) {
    Numa n{.os_index = i, .package = d.packages ? i * d.packages / d.numa_nodes : i};
    for (const CpuModel& c : kCpus)
      if (c.name == d.cpu) n.arch = c.arch, n.vendor = c.vendor, n.family = c.family, n.model = c.model;
    numas.push_back(m.add({.kind = Kind::numa, .name = fmt::format("NUMA{}", i), .detail = std::move(n)}));
  }
  const int switches =
      d.gpus_per_pci_switch ? std::max(1, (d.gpus + d.gpus_per_pci_switch - 1) / d.gpus_per_pci_switch) : 0;
  const int bridges = d.host_bridges ? d.host_bridges : switches ? switches : d.numa_nodes;
  std::vector<int> holders;
  for (int i = 0; i < bridges; ++i)
    holders.push_back(m.add({.kind = Kind::host_bridge,
                             .name = fmt::format("host bridge {}", i),
                             .parent = at(numas, i, bridges)}));
  if (switches) {
    std::vector<int> made;
    for (int i = 0; i < switches; ++i)
      made.push_back(
          add_pci(Kind::pci_switch, at(holders, i, switches), pci(0x060400, gt, d.pci_lanes), "", {}));
    holders = made;
  }
  std::vector<int> gpus;
  for (int i = 0; i < d.gpus; ++i) {
    const int holder =
        switches ? holders[static_cast<size_t>(i / d.gpus_per_pci_switch)] : at(holders, i, d.gpus);
    gpus.push_back(
        add_pci(Kind::gpu, holder, pci(0x030200, gt, d.pci_lanes), fmt::format("GPU{}", i),
                Gpu{.index = i, .sm = compute_capability(d), .model = d.gpu, .gpudirect = Answer3::yes}));
  }
  for (int i = 0, number = 0; i < d.nics; ++i) {
    const bool infiniband = d.network == Network::infiniband;
    const int nic = add_pci(
        Kind::nic, at(holders, i, d.nics),
        pci(infiniband ? 0x020700 : 0x020000, nic_gt, d.nic_pci_lanes ? d.nic_pci_lanes : d.pci_lanes), "",
        Nic{});
    for (int p = 1; p <= d.ports_per_nic; ++p, ++number) {
      const std::string device = fmt::format("{}{}", port_prefix(d.network), number);
      m.add({.kind = Kind::port,
             .name = device,
             .parent = nic,
             .detail = Port{.device = device,
                            .number = p,
                            .index = number,
                            .network = d.network,
                            .gbit_per_s = d.gbit_per_s,
                            .latency_us = d.port_latency_us,
                            .up = Answer3::yes,
                            .gpudirect = d.network == Network::ethernet || d.network == Network::unknown
                                             ? Answer3::unknown
                                             : Answer3::yes}});
    }
  }
  add_nvlinks(m, d, gpus);
  if (d.c2c)
    for (size_t i = 0; i < gpus.size(); ++i) {
      const Rate r = c2c_rate();
      m.link({gpus[i], m.numa_of(gpus[i]), LinkKind::c2c, 1, r, nvlink_latency()});
    }
  complete(m);
  validate(m);
  return m;
}

}  // namespace muster::topology
