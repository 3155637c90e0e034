// PCI functions: their addresses, what they are, and how fast their links are.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "topology/source.h"

namespace muster::topology {

// Vendors, as functions name them.
inline constexpr uint16_t kNvidia = 0x10de, kAmd = 0x1002, kIntel = 0x8086, kMellanox = 0x15b3;

// dddd:bb:dd.f. Virtual machines have domains of up to 32 bits, and files have made-up addresses for switches.
struct PciAddress {
  uint32_t domain = 0;
  uint8_t bus = 0, device = 0, function = 0;

  auto operator<=>(const PciAddress&) const = default;
  std::string text() const;  // lower case
  // Also without domain ("17:00.0"), in capitals and with the 8 digits that nvidia-smi prints. Nothing for anything else,
  // such as the "fffffff:ffff:ff" that stands for an unreadable one.
  static std::optional<PciAddress> parse(std::string_view text);
};

// What a function says of itself. 0: unknown.
struct Pci {
  PciAddress address;
  uint32_t class_code = 0;  // 24 bits: 0x060400 is a bridge
  uint16_t vendor = 0, device = 0, subsystem_vendor = 0, subsystem_device = 0;
  double gigatransfers = 0;  // per second and lane: 2.5, 5, 8, 16, 32, 64
  int lanes = 0;

  bool is_bridge() const;    // also ConnectX-8's data-direct function, which stands for one
  bool is_gpu() const;       // display controllers and, of known vendors, processing accelerators
  bool is_nic() const;       // network controllers
  bool is_nvswitch() const;
};

// "16.0 GT/s PCIe", "8 GT/s", "Unknown", "": transfers per second and lane in 10^9; 0 where it isn't said.
double parse_link_speed(std::string_view text);
// What a link of this speed carries in one direction; third generation x16 is assumed for what is unknown (Rate::source
// says so). Source: the cost model's rates in NCCL's documentation of facts (rates.h), 15 per lane of 2.5 GT/s in units
// of 1/80 GB/s, doubled per generation.
Rate pcie_rate(double gigatransfers, int lanes);
// A link that no GPU or network card of our time has: a virtual bridge's 2.5 GT/s x1.
bool is_implausible(double gigatransfers, int lanes);

}  // namespace muster::topology
