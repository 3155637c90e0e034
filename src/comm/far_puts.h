// Puts and signals between ranks of different hosts, which map no memory of each other. They are sent over connections of
// their own; the target takes them in whenever somebody looks after its network: its own thread in calls, else the helper
// thread. So, as inside a host, no call at the target is needed for a put to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/published.h"
#include "transports/network.h"

namespace muster {

class FarPuts {
 public:
  struct Connections {
    uint64_t communicator = 0;
    std::vector<int> ranks;  // by rank of the communicator: the network's
    int lane = 0;
    size_t slot_bytes = 0;
    Doorbell* bell = nullptr;  // this rank's
  };
  // Both outlive it.
  FarPuts(Network& network, const Published& ranks, Connections connections);

  // Begins to take in; what came before isn't lost.
  void open();
  // This rank's part of a window; numbered in the order of calls, which is equal on all ranks.
  uint32_t add_window(std::byte* base, size_t bytes);
  void remove_window(uint32_t number);  // when it returns nobody writes there any more

  // --- sending; for the thread that runs calls ---
  struct Put {
    int peer = -1;
    uint32_t signal = 0;  // its number, below kSignals
    uint32_t window = 0;
    uint64_t offset = 0, bytes = 0;  // 0 bytes: the signal alone
    const std::byte* source = nullptr;
  };
  // Sends as much as goes of the put under way, from `*sent` on (0 at first): done when it has become more than put.bytes.
  // True if anything went.
  bool send(const Put& put, uint64_t* sent);

  // --- at the target; any thread ---
  // Signals of a rank that have come and weren't taken.
  uint64_t signals(int from, uint32_t signal) const;
  void take_signals(int from, uint32_t signal, uint64_t n);
  // Writes what has come where it belongs, and counts signals; true if anything had come.
  bool take_in();

 private:
  struct Header {
    uint64_t offset, bytes;
    uint32_t window, signal;
  };
  static_assert(sizeof(Header) <= kInlineBytes);
  struct Source {
    int rank = -1;
    SlotReceiver* receiver = nullptr;
    bool in_put = false;
    Header put{};
    uint64_t taken = 0;
  };
  struct Part {
    std::byte* base;
    size_t bytes;
  };
  WireName wire(int peer) const { return {at_.communicator, at_.ranks[static_cast<size_t>(peer)], at_.lane, at_.slot_bytes}; }
  void take(Source& s);
  void end_put(Source& s);

  Network& network_;
  const Published& ranks_;
  const Connections at_;
  mutable std::mutex mutex_;
  std::vector<Source> sources_;  // once it is open
  uint32_t windows_ = 0;         // added so far
  std::map<uint32_t, Part> parts_;
  std::map<std::pair<int, uint32_t>, uint64_t> signals_;  // by rank and number
};

}  // namespace muster
