// Which RDMA ports and GIDs of this host serve, and over which pairs of them a peer is likely to be reached. Pure functions
// of what libibverbs says and of NCCL_IB_* options; connecting proves a pair by a message.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace muster::verbs {

struct Gid {
  enum class Kind : uint8_t { infiniband, roce_v1, roce_v2 };
  std::array<uint8_t, 16> bytes{};
  uint32_t index = 0;  // in its port's table
  Kind kind = Kind::infiniband;
  uint8_t subnet_bits = 0;  // of the 128, those that its subnet has in common; 0: not known

  bool is_ipv4() const;        // ::ffff:a.b.c.d
  bool is_link_local() const;  // fe80::/10
  std::string text() const;    // "10.0.0.1 (index 3, RoCE v2)"
  friend bool operator==(const Gid&, const Gid&) = default;
};

struct Port {
  std::string device;  // "mlx5_0"
  uint8_t number = 1;
  bool active = false;
  bool infiniband = false;  // its link layer; else Ethernet
  uint16_t lid = 0;         // InfiniBand
  uint8_t mtu = 3;          // as InfiniBand numbers them: 1 is 256, 3 is 1024, 5 is 4096 bytes
  double gbit_per_s = 0;    // 0: not known
  std::vector<Gid> gids;    // without those that are zero

  std::string name() const;  // "mlx5_0:1"
};

struct PortWishes {
  std::string hca;               // NCCL_IB_HCA
  std::optional<int> gid_index;  // NCCL_IB_GID_INDEX
  bool ipv6 = false;             // NCCL_IB_ADDR_FAMILY=AF_INET6: IPv6 addresses before IPv4's
  std::string range;             // NCCL_IB_ADDR_RANGE: ADDRESS/BITS
  int roce_version = 2;          // NCCL_IB_ROCE_VERSION_NUM

  // Throws invalid_usage for what can't be read.
  static PortWishes from(const Options& options);
};

// Ports that are active, wished for and have an address to be reached at, the fastest first and in the order given among
// equals; of ports with less than half the fastest's rate none, unless NCCL_IB_HCA names them. At most kMostPorts. The GIDs of each are the
// kMostGids best, best first: any other before a link-local one, the wished RoCE version before the other, IPv4 before IPv6
// (or as wished), the lower index.
// Empty: none serves, and `why_not` says of each port why.
inline constexpr size_t kMostPorts = 4, kMostGids = 3;
std::vector<Port> choose_ports(std::span<const Port> all, const PortWishes& wishes, std::string& why_not);

// A local and a remote port with one GID of each.
struct Path {
  size_t local = 0, local_gid = 0;    // positions in the local list
  size_t remote = 0, remote_gid = 0;  // and in the peer's
  friend bool operator==(const Path&, const Path&) = default;
};
// All pairs that could work (same link layer, RoCE version and address family), the most promising first: addresses as
// preferred on both sides; those of one subnet; ports at the same place of both lists, as rails are cabled; the longest common
// prefix.
std::vector<Path> possible_paths(std::span<const Port> local, std::span<const Port> remote);

// Of paths that are known to work, the first of each pair of ports that no path before it uses: the rails.
std::vector<Path> rails_of(std::span<const Path> working);

// "mlx5_0:1 10.0.0.1 (index 3, RoCE v2) to mlx5_1:1 10.0.0.2 (index 3, RoCE v2)"
std::string text_of(const Path& path, std::span<const Port> local, std::span<const Port> remote);

}  // namespace muster::verbs
