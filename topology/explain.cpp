#include "topology/explain.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "topology/paths.h"
#include "topology/rates.h"

namespace muster::topology {

std::string explanation() {
  std::string text = "Path classes, the closest first. A path has the class of its farthest part.\n\n";
  const auto add = [&](std::string_view name, std::string_view what) {
    fmt::format_to(std::back_inserter(text), "  {:<9} {}\n", name, what);
  };
  for (int c = 0; c <= static_cast<int>(PathClass::dis); ++c) {
    const auto path_class = static_cast<PathClass>(c);
    add(name_of(path_class),
        fmt::format("{} ({})", explanation_of(path_class), name_of(plain(path_class, Network::unknown))));
  }
  text +=
      "\nIn the matrix, as in nvidia-smi's: NV# is # NVLinks, X the device itself. NVB, C2C, P2C and PXN are "
      "what NCCL and\n"
      "Muster know beyond it; there such pairs have the class of their PCI path.\n\n"
      "Rates are GB/s (10^9 bytes) in one direction, those of paths that of their narrowest link. \"?\" "
      "marks what is assumed.\n\n";
  add("measured", "by a benchmark on this machine");
  add("read", "from the system, a driver or the file: speeds of ports, C2C");
  add("table", "known of this kind of part; what collectives reach rather than what the data sheet promises");
  add("assumed", "nothing is known: what is usual");
  text += "\n";
  for (const auto& [sm, name] : std::array<std::pair<int, const char*>, 5>{
           {{60, "Pascal"}, {70, "Volta"}, {80, "Ampere"}, {90, "Hopper"}, {100, "Blackwell"}}})
    add("NVLink", fmt::format("{:<10} {} GB/s per link, up to {} links", name, nvlink_rate(sm).gb_per_s,
                              nvlink_ports(sm)));
  for (const auto& [gt, generation] :
       std::array<std::pair<double, int>, 4>{{{8, 3}, {16, 4}, {32, 5}, {64, 6}}})
    add("PCIe", fmt::format("gen{} x16   {} GB/s", generation, pcie_rate(gt, 16).gb_per_s));
  add("CPUs", "40 GB/s Emerald Rapids, 22 Sapphire Rapids, 10 Skylake, 6 before; 16 EPYC; 32 POWER9; 6 Arm");
  add("network", "the port's Gbit/s divided by 8; 12 GB/s where it is unknown");
  text +=
      "\nSource of the table: what NCCL's planner uses (graph/topo.h of 2.18 to 2.30), RCCL's for xGMI; Volta's NVLinks\n"
      "carry 20 GB/s each where they lead to NVSwitches.\n\n"
      "Findings: \"note\" is worth knowing, \"warning\" is probably not as intended, \"error\" can't be so. "
      "--check looks for the\n"
      "last two.\n";
  return text;
}

}  // namespace muster::topology
