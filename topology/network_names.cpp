#include "topology/network_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.h"

namespace muster::topology {
namespace {

template <size_t N>
bool begins_with_one_of(std::string_view name, const std::array<std::string_view, N>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view b) { return name.starts_with(b); });
}

constexpr std::array<std::string_view, 8> kRdma = {"mlx4_", "mlx5_", "bnxt_re", "irdma",
                                                   "roce",  "hns_",  "qedr",    "ionic_"};
constexpr std::array<std::string_view, 12> kInterfaces = {"eth",  "en",  "veth", "br-",   "bond", "docker",
                                                          "cali", "lxc", "tun",  "virbr", "wl",   "cxi"};

}  // namespace

Network network_of(uint32_t class_code, uint16_t vendor, std::string_view device) {
  constexpr uint16_t kAmazon = 0x1d0f;
  const std::string name = lower(device);
  if (name.starts_with("rdmap") || name.starts_with("efa") || (vendor == kAmazon && !name.starts_with("e")))
    return Network::efa;
  const bool rdma = begins_with_one_of(name, kRdma);
  if (class_code >> 8 == 0x0207) return name.starts_with("roce") ? Network::roce : Network::infiniband;
  if (class_code >> 8 == 0x0200) return rdma ? Network::roce : Network::ethernet;
  if (name.starts_with("roce")) return Network::roce;
  if (name.starts_with("ib")) return Network::infiniband;
  if (begins_with_one_of(name, kInterfaces)) return Network::ethernet;
  return Network::unknown;
}

std::string guid_of(std::string_view text) {
  std::string digits(text);
  std::erase(digits, ':');
  uint64_t v = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), v, 16);
  if (error != std::errc() || end != digits.data() + digits.size() || v == 0) return {};
  return fmt::format("0x{:016x}", v);
}

}  // namespace muster::topology
