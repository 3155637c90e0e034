#include "transports/verbs/hello.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace muster::verbs {
namespace {

struct WirePort {
  char device[64];
  double gbit_per_s;
  uint32_t greeter, adapter;
  uint16_t lid;
  uint8_t number, infiniband, mtu, gids;
  struct {
    uint8_t bytes[16];
    uint32_t index;
    uint8_t kind, subnet_bits;
  } gid[kMostGids];
};
static_assert(std::is_trivially_copyable_v<WirePort>);

}  // namespace

std::string write_address(std::span<const KnownPort> ports) {
  std::string r;
  for (const KnownPort& k : ports) {
    WirePort w{};
    k.port.device.copy(w.device, sizeof w.device - 1);
    w.gbit_per_s = k.port.gbit_per_s;
    w.greeter = k.greeter;
    w.adapter = k.adapter;
    w.lid = k.port.lid;
    w.number = k.port.number;
    w.infiniband = k.port.infiniband;
    w.mtu = k.port.mtu;
    w.gids = static_cast<uint8_t>(std::min(k.port.gids.size(), kMostGids));
    for (size_t i = 0; i < w.gids; ++i) {
      const Gid& g = k.port.gids[i];
      std::memcpy(w.gid[i].bytes, g.bytes.data(), sizeof w.gid[i].bytes);
      w.gid[i].index = g.index;
      w.gid[i].kind = static_cast<uint8_t>(g.kind);
      w.gid[i].subnet_bits = g.subnet_bits;
    }
    r.append(reinterpret_cast<const char*>(&w), sizeof w);
  }
  return r;
}

std::vector<KnownPort> read_address(std::string_view text) {
  if (text.size() % sizeof(WirePort) != 0 || text.size() / sizeof(WirePort) > kMostPorts)
    fail(Result::internal_error, "a rank's RDMA address has {} bytes, which no rank of this version sends", text.size());
  std::vector<KnownPort> r;
  for (; !text.empty(); text.remove_prefix(sizeof(WirePort))) {
    WirePort w;
    std::memcpy(&w, text.data(), sizeof w);
    w.device[sizeof w.device - 1] = '\0';
    if (w.gids > kMostGids || w.mtu < 1 || w.mtu > 5 || w.adapter >= kMostPorts)
      fail(Result::internal_error, "a rank's RDMA address says what no port has");
    KnownPort k{.greeter = w.greeter, .adapter = w.adapter};
    k.port = {.device = w.device, .number = w.number, .active = true, .infiniband = w.infiniband != 0, .lid = w.lid, .mtu = w.mtu, .gbit_per_s = w.gbit_per_s};
    for (size_t i = 0; i < w.gids; ++i) {
      Gid g;
      std::memcpy(g.bytes.data(), w.gid[i].bytes, g.bytes.size());
      g.index = w.gid[i].index;
      g.kind = static_cast<Gid::Kind>(w.gid[i].kind);
      g.subnet_bits = w.gid[i].subnet_bits;
      k.port.gids.push_back(g);
    }
    r.push_back(std::move(k));
  }
  return r;
}

}  // namespace muster::verbs
