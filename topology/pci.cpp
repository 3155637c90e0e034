#include "topology/pci.h"

#include <fmt/format.h>

#include <charconv>

#include "base/text.h"

namespace muster::topology {
namespace {


template <class T>
bool parse_hex(std::string_view text, size_t most_digits, T* out) {
  if (text.empty() || text.size() > most_digits) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out, 16);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string PciAddress::text() const { return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function); }

std::optional<PciAddress> PciAddress::parse(std::string_view text) {
  const std::vector<std::string_view> parts = split(trim(text), ':');
  if (parts.size() != 2 && parts.size() != 3) return std::nullopt;
  PciAddress a;
  if (parts.size() == 3 && !parse_hex(parts[0], 8, &a.domain)) return std::nullopt;
  if (!parse_hex(parts[parts.size() - 2], 2, &a.bus)) return std::nullopt;
  const std::vector<std::string_view> last = split(parts.back(), '.');
  if (last.size() != 2 || !parse_hex(last[0], 2, &a.device) || !parse_hex(last[1], 1, &a.function)) return std::nullopt;
  return a;
}

bool Pci::is_bridge() const {
  return class_code >> 8 == 0x0604 || (class_code == 0x080100 && vendor == kMellanox);
}

bool Pci::is_gpu() const {
  const uint32_t base = class_code >> 16, sub = class_code >> 8 & 0xff;
  if (vendor == kAmd && (device == 0x515e || device == 0x5969 || device == 0x4752)) return false;  // ES1000, Rage XL: consoles of servers
  if (base == 0x03) return vendor == 0 || vendor == 0xffff || vendor == kNvidia || vendor == kAmd || (vendor == kIntel && sub != 0);
  return base == 0x12 && vendor == kAmd;
}

bool Pci::is_nic() const { return class_code >> 16 == 0x02; }

bool Pci::is_nvswitch() const { return class_code == 0x068000 && (vendor == kNvidia || vendor == 0); }

double parse_link_speed(std::string_view text) {
  text = trim(text);
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || !(v > 0) || v > 1024) return 0;
  const std::string unit = lower(trim({end, static_cast<size_t>(text.data() + text.size() - end)}));
  return unit.empty() || unit.starts_with("gt") ? v : 0;
}

Rate pcie_rate(double gigatransfers, int lanes) {
  const bool known = gigatransfers > 0 && lanes > 0;
  const double gt = gigatransfers > 0 ? gigatransfers : 8;
  const int width = lanes > 0 ? lanes : 16;
  // Rates are halved below 2.5 and doubled above 64 alike, should there be any; generations 1 and 2 code 8 bits in 10.
  const double per_lane = gt <= 5 ? gt * 6 : gt * 7.5;  // 15, 30, 60, 120, 240, 480
  return {width * per_lane / 80, known ? Source::table : Source::assumed};
}

bool is_implausible(double gigatransfers, int lanes) {
  return gigatransfers > 0 && lanes > 0 && pcie_rate(gigatransfers, lanes).gb_per_s < 1;
}

}  // namespace muster::topology
