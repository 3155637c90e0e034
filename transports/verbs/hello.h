// What ranks say to each other by datagrams until a connection stands, and what each says of itself at init.
//
// The lower rank opens. It probes pairs of ports and GIDs; the other answers each probe the way it came, so that what is then
// chosen is known to work. Then `open` has the numbers of the opener's queue pairs, `opened` the other's, and the first message over
// a queue pair tells the answerer that it may send. Lost datagrams are said again. Where a connection has broken, the same makes
// the next one, of a higher epoch; both sides say how many messages each of the old queue pairs delivered to them, so
// that each message is delivered once.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "transports/verbs/ports.h"
#include "transports/verbs/settings.h"

namespace muster::verbs {

inline constexpr size_t kMostPairs = kMostPorts * kMostQueues;

struct WirePath {
  uint8_t local = 0, local_gid = 0, remote = 0, remote_gid = 0;
  static WirePath from(const Path& p) {
    return {static_cast<uint8_t>(p.local), static_cast<uint8_t>(p.local_gid), static_cast<uint8_t>(p.remote), static_cast<uint8_t>(p.remote_gid)};
  }
  Path path() const { return {local, local_gid, remote, remote_gid}; }
};
inline Path reversed(const Path& p) { return {p.remote, p.remote_gid, p.local, p.local_gid}; }

struct Hello {
  static constexpr uint32_t kMagic = 0x3156524d;
  enum class Kind : uint8_t {
    want,     // to the opener: I have something to send, or my connection of `epoch` has broken
    probe,    // to the answerer
    echo,     // its answer
    open,     // to the answerer: these are my queue pairs
    opened,   // to the opener: and these mine
    refused,  // I have given up the connection to you
  };
  uint32_t magic = kMagic;
  Kind kind = Kind::want;
  uint8_t rails = 0, queues = 0, unused = 0;  // queue pairs are rail by rail, `queues` of each
  uint64_t secret = 0;                        // NetworkSetup::secret
  uint32_t from = 0, to = 0;                  // ranks
  uint32_t epoch = 0;                         // of the connection in question, from 1
  uint32_t base = 0;                          // the last one that was used; `received` is about it
  uint32_t first = 0;                         // number of the first packet
  WirePath path;                              // by which this goes, as the sender sees it; so are all
  WirePath rail[kMostPorts] = {};
  uint32_t pair[kMostPairs] = {};
  uint32_t received[kMostPairs] = {};
};
static_assert(std::is_trivially_copyable_v<Hello>);

// A port as its rank tells others of it.
struct KnownPort {
  Port port;
  uint32_t greeter = 0;  // number of its greeter's queue pair
  uint32_t adapter = 0;  // which of the rank's adapters it belongs to
};
std::string write_address(std::span<const KnownPort> ports);
// Throws internal_error for anything that write_address didn't make.
std::vector<KnownPort> read_address(std::string_view text);

}  // namespace muster::verbs
