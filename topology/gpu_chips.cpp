#include "topology/gpu_chips.h"

namespace muster::topology {
namespace {

struct Chips {
  uint16_t first, last;
  int number;
};

int look_up(const Chips* table, size_t n, uint16_t device) {
  for (size_t i = 0; i < n; ++i)
    if (device >= table[i].first && device <= table[i].last) return table[i].number;
  return 0;
}

constexpr Chips kNvidiaChips[] = {
    {0x15f0, 0x15ff, 60},   // GP100
    {0x1b00, 0x1d7f, 61},   // GP102 to GP108
    {0x1d81, 0x1dff, 70},   // GV100
    {0x1e00, 0x1fff, 75},   // TU102 to TU117
    {0x2080, 0x20ff, 80},   // GA100
    {0x2180, 0x21ff, 75},   // TU116
    {0x2200, 0x22ff, 86},   // GA102, GA103
    {0x2300, 0x23ff, 90},   // GH100
    {0x2480, 0x25ff, 86},   // GA104 to GA107
    {0x2680, 0x28ff, 89},   // AD102 to AD107
    {0x2900, 0x29ff, 100},  // GB100, GB102
    {0x2b80, 0x2d7f, 120},  // GB202 to GB207
    {0x2e00, 0x2eff, 121},  // GB20B
    {0x3180, 0x31ff, 103},  // GB110, GB112
};

constexpr Chips kAmdChips[] = {
    {0x6860, 0x687f, 900},  // Vega 10: MI25
    {0x66a0, 0x66af, 906},  // Vega 20: MI50, MI60
    {0x7388, 0x738e, 908},  // Arcturus: MI100
    {0x7408, 0x7410, 910},  // Aldebaran: MI210, MI250
    {0x74a0, 0x74bd, 942},  // Aqua Vanjaram: MI300, MI325
    {0x75a0, 0x75bf, 950},  // MI350, MI355
};

}  // namespace

int compute_capability_of(const Pci& pci) {
  return pci.vendor == kNvidia ? look_up(kNvidiaChips, std::size(kNvidiaChips), pci.device) : 0;
}
int gcn_of(const Pci& pci) { return pci.vendor == kAmd ? look_up(kAmdChips, std::size(kAmdChips), pci.device) : 0; }

void recognise_chips(Machine& m) {
  for (const int g : m.all(Kind::gpu)) {
    Gpu& gpu = std::get<Gpu>(m[g].detail);
    if (gpu.sm != 0 || gpu.gcn != 0 || !m[g].pci) continue;
    gpu.sm = compute_capability_of(*m[g].pci);
    gpu.gcn = gcn_of(*m[g].pci);
  }
}

}  // namespace muster::topology
