// The memory by which GPUs of different ranks send each other messages: a piece per rank that peers map, on
// its GPU, and another in host memory for those that don't reach that.
//
// For each peer and lane it holds what comes from that peer (a counter, headers, slots, and behind all of
// those the lines of slots) and the counter of what the peer has taken. So whoever waits polls its own
// memory, and writes go to the peer's. Where something lies follows from the shape, which all ranks share:
// an address is all they exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/math.h"
#include "exec/cuda/kernel_plan.h"

namespace muster::cuda {

struct MailboxShape {
  int ranks = 1;
  int lanes = 1;                 // connections between two ranks for programs, per direction
  int message_lanes = 0;         // behind those: for sends and receives
  uint32_t slots = 8;            // of a connection; a power of two, 2 or more
  size_t slot_bytes = 64 << 10;  // a multiple of 128
  size_t line_bytes = 32 << 10;  // of a slot, for messages of lines: 8 of 16 bytes are data. The same
  friend bool operator==(const MailboxShape&, const MailboxShape&) = default;

  int all_lanes() const { return lanes + message_lanes; }
  size_t bytes() const {
    return connections_bytes() + static_cast<size_t>(ranks) * static_cast<size_t>(lanes) * slots * line_bytes;
  }
  // Of a rank's mailbox, where `base` is: what it shares with `peer` on `lane`.
  uint64_t* posted(std::byte* base, int peer, int lane) const {
    return reinterpret_cast<uint64_t*>(connection(base, peer, lane));
  }
  uint64_t* taken(std::byte* base, int peer, int lane) const {
    return posted(base, peer, lane) + kCounterBytes / sizeof(uint64_t);
  }
  std::byte* headers(std::byte* base, int peer, int lane) const {
    return connection(base, peer, lane) + 2 * kCounterBytes;
  }
  std::byte* ring(std::byte* base, int peer, int lane) const {
    return connection(base, peer, lane) + head_bytes();
  }
  std::byte* lines(std::byte* base, int peer, int lane) const {
    if (lane >= lanes) return nullptr;  // sends and receives have none
    return base + connections_bytes() +
           (static_cast<size_t>(peer) * static_cast<size_t>(lanes) + static_cast<size_t>(lane)) * slots *
               line_bytes;
  }

 private:
  // A counter has a line of GPU caches to itself.
  static constexpr size_t kCounterBytes = 128;
  static constexpr size_t kHeaderBytes = 16;
  size_t head_bytes() const { return 2 * kCounterBytes + align_up(slots * kHeaderBytes, kCounterBytes); }
  size_t connection_bytes() const { return head_bytes() + slots * slot_bytes; }
  size_t connections_bytes() const {
    return static_cast<size_t>(ranks) * static_cast<size_t>(all_lanes()) * connection_bytes();
  }
  std::byte* connection(std::byte* base, int peer, int lane) const {
    return base + (static_cast<size_t>(peer) * static_cast<size_t>(all_lanes()) + static_cast<size_t>(lane)) *
                      connection_bytes();
  }
};

// Which ends a rank has, by index: those that send first.
inline uint32_t sending_end(const MailboxShape& s, int peer, int lane) {
  return static_cast<uint32_t>(peer * s.all_lanes() + lane);
}
inline uint32_t receiving_end(const MailboxShape& s, int peer, int lane) {
  return static_cast<uint32_t>((s.ranks + peer) * s.all_lanes() + lane);
}

// Of an end: whether it sends, to or from whom, and on which lane.
struct EndPlace {
  bool sends;
  int peer, lane;
};
inline EndPlace place_of(const MailboxShape& s, uint32_t end) {
  const int i = static_cast<int>(end) / s.all_lanes();
  return {i < s.ranks, i % s.ranks, static_cast<int>(end) % s.all_lanes()};
}

inline size_t end_count(const MailboxShape& s) {
  return 2 * static_cast<size_t>(s.ranks) * static_cast<size_t>(s.all_lanes());
}

// Those of `rank` that send to `peer`, or receive from it, by lane. `mine`, `theirs`: where the two mailboxes
// are, in this rank's addresses. `first`: number of the first message.
inline std::vector<KernelEnd> ends_with(const MailboxShape& s, int rank, int peer, bool sends,
                                        std::byte* mine, std::byte* theirs, uint64_t first) {
  std::vector<KernelEnd> ends;
  for (int lane = 0; lane < s.all_lanes(); ++lane)
    ends.push_back(sends ? KernelEnd{s.ring(theirs, rank, lane), s.lines(theirs, rank, lane),
                                     s.headers(theirs, rank, lane), s.posted(theirs, rank, lane),
                                     s.taken(mine, peer, lane), first, peer, nullptr}
                         : KernelEnd{s.ring(mine, peer, lane), s.lines(mine, peer, lane),
                                     s.headers(mine, peer, lane), s.posted(mine, peer, lane),
                                     s.taken(theirs, rank, lane), first, peer, nullptr});
  return ends;
}

}  // namespace muster::cuda
