#include "transports/verbs/ports.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace muster::verbs {
namespace {

// NCCL_IB_HCA, taken apart: names by prefix, each with a port or without; '=' in front: exact names; '^': all others.
struct HcaWish {
  bool exact = false, exclude = false;
  struct Entry {
    std::string device;
    int port = -1;
  };
  std::vector<Entry> entries;

  explicit HcaWish(std::string_view text) {
    text = trim(text);
    for (; !text.empty() && (text[0] == '^' || text[0] == '='); text = trim(text.substr(1)))
      (text[0] == '^' ? exclude : exact) = true;
    for (std::string_view part : split(text, ',')) {
      part = trim(part);
      if (part.empty()) continue;
      Entry e;
      const auto colon = part.find(':');
      e.device = part.substr(0, colon);
      if (colon != part.npos) {
        const auto port = parse_c_integer(part.substr(colon + 1));
        if (!port || *port < 1 || *port > 255)
          fail(Result::invalid_usage, "NCCL_IB_HCA='{}': '{}' is no port of a device; DEVICE:PORT is wanted, e.g. mlx5_0:1",
               printable(text, 200), printable(part, 60));
        e.port = static_cast<int>(*port);
      }
      entries.push_back(std::move(e));
    }
  }
  bool says_nothing() const { return entries.empty(); }
  bool wants(const Port& p) const {
    if (says_nothing()) return true;
    const bool named = std::any_of(entries.begin(), entries.end(), [&](const Entry& e) {
      return (exact ? p.device == e.device : p.device.starts_with(e.device)) && (e.port < 0 || e.port == p.number);
    });
    return named != exclude;
  }
};

// NCCL_IB_ADDR_RANGE.
struct Range {
  std::array<uint8_t, 16> prefix{};
  int bits = 0;  // of the 128

  explicit Range(const std::string& text) {
    if (text.empty()) return;
    const auto slash = text.find('/');
    const std::string host = text.substr(0, slash);
    const auto length = slash == text.npos ? std::nullopt : parse_c_integer(text.substr(slash + 1));
    const bool ipv4 = inet_pton(AF_INET, host.c_str(), prefix.data() + 12) == 1;
    if (ipv4) prefix[10] = prefix[11] = 0xff;
    if ((!ipv4 && inet_pton(AF_INET6, host.c_str(), prefix.data()) != 1) || !length || *length < 0 || *length > (ipv4 ? 32 : 128))
      fail(Result::invalid_usage, "NCCL_IB_ADDR_RANGE='{}' can't be read: ADDRESS/BITS is wanted, e.g. 10.1.0.0/16", printable(text, 200));
    bits = static_cast<int>(*length) + (ipv4 ? 96 : 0);
  }
  bool holds(const Gid& g) const;
};

int common_prefix(const std::array<uint8_t, 16>& a, const std::array<uint8_t, 16>& b) {
  int bits = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const uint8_t differ = a[i] ^ b[i];
    if (differ != 0) return bits + __builtin_clz(differ) - 24;
    bits += 8;
  }
  return bits;
}

bool Range::holds(const Gid& g) const { return common_prefix(prefix, g.bytes) >= bits; }

// The less the better.
int dislike(const Gid& g, const PortWishes& w) {
  if (g.kind == Gid::Kind::infiniband) return 0;
  const bool other_version = (g.kind == Gid::Kind::roce_v2) != (w.roce_version == 2);
  return (g.is_link_local() ? 4 : 0) + (other_version ? 2 : 0) + (g.is_ipv4() == w.ipv6 ? 1 : 0);
}

// Empty: the port has none, for the reason returned.
std::string choose_gids(Port& p, const PortWishes& w, const Range& range) {
  if (w.gid_index) {
    std::erase_if(p.gids, [&](const Gid& g) { return g.index != static_cast<uint32_t>(*w.gid_index); });
    if (p.gids.empty() && !p.infiniband) return fmt::format("has no GID at NCCL_IB_GID_INDEX={}", *w.gid_index);
    return {};
  }
  if (p.infiniband) {  // the first is the port's own; LIDs lead to it inside a subnet
    if (p.gids.size() > 1) p.gids.resize(1);
    return p.lid == 0 && p.gids.empty() ? "has neither LID nor GID: is a subnet manager running?" : "";
  }
  if (p.gids.empty()) return "has no GID: its network interface has no address";
  const std::string all = p.gids[0].text();
  if (!w.range.empty()) std::erase_if(p.gids, [&](const Gid& g) { return !range.holds(g); });
  if (p.gids.empty()) return fmt::format("has no GID in NCCL_IB_ADDR_RANGE={} (it has {} ...)", w.range, all);
  std::stable_sort(p.gids.begin(), p.gids.end(), [&](const Gid& a, const Gid& b) {
    return std::tuple(dislike(a, w), a.index) < std::tuple(dislike(b, w), b.index);
  });
  if (p.gids.size() > kMostGids) p.gids.resize(kMostGids);
  return {};
}

}  // namespace

bool Gid::is_ipv4() const {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(bytes.data(), kMapped, sizeof kMapped) == 0;
}

bool Gid::is_link_local() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

std::string Gid::text() const {
  char address[INET6_ADDRSTRLEN] = "";
  is_ipv4() ? inet_ntop(AF_INET, bytes.data() + 12, address, sizeof address)
            : inet_ntop(AF_INET6, bytes.data(), address, sizeof address);
  const char* what = kind == Kind::infiniband ? "InfiniBand" : kind == Kind::roce_v1 ? "RoCE v1" : "RoCE v2";
  return fmt::format("{} (index {}, {})", address, index, what);
}

std::string Port::name() const { return fmt::format("{}:{}", device, number); }

PortWishes PortWishes::from(const Options& options) {
  PortWishes w;
  w.hca = options.text("NCCL_IB_HCA");
  if (const int64_t index = options.integer("NCCL_IB_GID_INDEX"); index >= 0) w.gid_index = static_cast<int>(std::min<int64_t>(index, INT32_MAX));
  const std::string& family = options.text("NCCL_IB_ADDR_FAMILY");
  if (family != "AF_INET" && family != "AF_INET6")
    fail(Result::invalid_usage, "NCCL_IB_ADDR_FAMILY='{}' can't be read: AF_INET or AF_INET6 is wanted", printable(family, 60));
  w.ipv6 = family == "AF_INET6";
  w.range = trim(options.text("NCCL_IB_ADDR_RANGE"));
  w.roce_version = static_cast<int>(options.integer("NCCL_IB_ROCE_VERSION_NUM"));
  if (w.roce_version != 1 && w.roce_version != 2)
    fail(Result::invalid_usage, "NCCL_IB_ROCE_VERSION_NUM={}: there are RoCE versions 1 and 2", w.roce_version);
  HcaWish{w.hca};
  Range{w.range};
  return w;
}

std::vector<Port> choose_ports(std::span<const Port> all, const PortWishes& wishes, std::string& why_not) {
  const HcaWish hca(wishes.hca);
  const Range range(wishes.range);
  std::vector<Port> chosen;
  why_not.clear();
  for (const Port& port : all) {
    Port p = port;
    std::string why;
    if (!hca.wants(p))
      why = fmt::format("is not among NCCL_IB_HCA={}", printable(wishes.hca, 200));
    else if (!p.active)
      why = "is not active: see `ibv_devinfo`, the cable and the switch";
    else
      why = choose_gids(p, wishes, range);
    if (why.empty())
      chosen.push_back(std::move(p));
    else
      why_not += fmt::format("{}{} {}", why_not.empty() ? "" : "; ", p.name(), why);
  }
  if (chosen.empty() && why_not.empty()) why_not = "this host has no RDMA devices (ibv_devices lists them)";
  std::stable_sort(chosen.begin(), chosen.end(), [](const Port& a, const Port& b) { return a.gbit_per_s > b.gbit_per_s; });
  if (hca.says_nothing() || hca.exclude)
    std::erase_if(chosen, [fastest = chosen.empty() ? 0 : chosen[0].gbit_per_s](const Port& p) { return p.gbit_per_s < fastest / 2; });
  if (chosen.size() > kMostPorts) chosen.resize(kMostPorts);
  return chosen;
}

std::vector<Path> possible_paths(std::span<const Port> local, std::span<const Port> remote) {
  struct Candidate {
    Path path;
    size_t rank_of_gids = 0;  // positions in both lists of GIDs: the best are first
    bool one_subnet = false, same_place = false;
    int common = 0;
  };
  std::vector<Candidate> found;
  for (size_t l = 0; l < local.size(); ++l)
    for (size_t r = 0; r < remote.size(); ++r) {
      const Port &a = local[l], &b = remote[r];
      if (a.infiniband != b.infiniband) continue;
      if (a.infiniband && (a.gids.empty() || b.gids.empty())) {  // by LIDs alone
        if (a.lid != 0 && b.lid != 0) found.push_back({{l, 0, r, 0}, 0, true, l == r, 0});
        continue;
      }
      for (size_t i = 0; i < a.gids.size(); ++i)
        for (size_t k = 0; k < b.gids.size(); ++k) {
          const Gid &x = a.gids[i], &y = b.gids[k];
          if (x.kind != y.kind || x.is_ipv4() != y.is_ipv4() || (!a.infiniband && x.is_link_local() != y.is_link_local())) continue;
          const int common = common_prefix(x.bytes, y.bytes);
          found.push_back({{l, i, r, k}, i + k, x.subnet_bits != 0 && common >= x.subnet_bits, l == r, common});
        }
    }
  std::stable_sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(a.rank_of_gids, !a.one_subnet, !a.same_place, -a.common) <
           std::tuple(b.rank_of_gids, !b.one_subnet, !b.same_place, -b.common);
  });
  std::vector<Path> r;
  for (const Candidate& c : found) r.push_back(c.path);
  return r;
}

std::vector<Path> rails_of(std::span<const Path> working) {
  std::vector<Path> rails;
  for (const Path& p : working)
    if (std::none_of(rails.begin(), rails.end(), [&](const Path& r) { return r.local == p.local || r.remote == p.remote; }))
      rails.push_back(p);
  return rails;
}

std::string text_of(const Path& path, std::span<const Port> local, std::span<const Port> remote) {
  const auto end = [](const Port& p, size_t gid) {
    return fmt::format("{} {}", p.name(), gid < p.gids.size() ? p.gids[gid].text() : fmt::format("LID {}", p.lid));
  };
  return fmt::format("{} to {}", end(local[path.local], path.local_gid), end(remote[path.remote], path.remote_gid));
}

}  // namespace muster::verbs
