// What joins ranks of different hosts: one Network per rank and family of communicators, whatever the transport.
//
// It moves what connections' ends publish (Wire in connection.h) whenever one of the rank's threads calls progress(). All
// members may be called by any thread of the rank, also at once, except for the ends themselves, which belong to the thread
// that runs their communicator's calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "transports/connection.h"

namespace muster {

// What a network must know of its family. Ranks are those of the family's first communicator.
struct NetworkSetup {
  int rank = 0;
  int nranks = 1;
  Options options = Options::inspect();
  // What messages from one rank to another carry, so that strangers' are told apart: made of the unique id's key, equal on
  // both ranks, different for each ordered pair.
  std::function<uint64_t(int from, int to)> secret;
  // Network interfaces to use, by name; empty: whatever there is. Those that NCCL_SOCKET_IFNAME names, else the one that leads to
  // where the ranks met: others may lead nowhere.
  std::vector<std::string> interfaces;
  std::function<std::string(int rank)> rank_name;  // for errors: "rank 3 (host a, pid 17)"
};

// One direction between this rank and another one, in one communicator.
struct WireName {
  uint64_t communicator = 0;  // its id: equal on all its ranks, never used again
  int peer = 0;
  int lane = 0;
  size_t slot_bytes = 0;  // of its largest message; equal at both ends
};

class Network {
 public:
  virtual ~Network() = default;  // tells its peers, frees everything; waits for a second at most

  virtual std::string_view name() const = 0;  // "ucx"
  // Bytes of a message from which larger ones gain nothing: what its connections' slots should have.
  virtual size_t slot_bytes() const = 0;
  // What others need to reach this rank, any bytes.
  virtual std::string address() const = 0;
  // The addresses of all ranks, once, before the first end is asked for. Empty: that rank isn't reached by this network.
  virtual void meet(std::vector<std::string> addresses) = 0;

  // The ends of connections, made on first use; references are valid until close(). `bell`: of this rank in that
  // communicator, rung when something has come; null: it never sleeps. Throw system_error where memory is short.
  virtual SlotSender& sender(const WireName& name, Doorbell* bell) = 0;
  virtual SlotReceiver& receiver(const WireName& name, Doorbell* bell) = 0;
  // Moves what can be moved, for all communicators; true if anything was, or if what had come before a failure is to be looked
  // at. Throws remote_error, naming the peer and what is known, when a connection of `communicator` is broken: it stays so.
  virtual bool progress(uint64_t communicator) = 0;
  // For a thread that looks after it while the rank's own threads make no calls, so that peers aren't held up: it looks now
  // and then whether looks() stays the same, calls tend() then, and arms it when that returns false.
  virtual uint64_t looks() const = 0;  // of progress()
  virtual bool tend() noexcept = 0;    // like progress(), for no communicator
  // Whether ends may send from GPU memory (SlotSender::send_from): messages of more than kInlineBytes, and from what it was shown.
  virtual bool reads_gpu_memory() const { return false; }
  // GPU memory, all of it in one allocation, that ends will send from for as long as the result lives, which ends before the network does
  // and when nothing of it is under way. Throws invalid_usage where it doesn't read it.
  virtual std::shared_ptr<void> show_gpu_memory(std::span<std::byte> memory);
  // After a call of it failed: returns when no user memory of its calls is read any more. Where a peer takes nothing for a
  // second its connection is given up.
  virtual void settle(uint64_t communicator) noexcept = 0;
  // Before a rank leaves a communicator: returns when its peers have all that it sent them, or can't get it: what it says of
  // its leaving by another way mustn't overtake that. Gives up, with a warning, where nothing moves for MUSTER_LINK_TIMEOUT.
  virtual void drain(uint64_t communicator) noexcept = 0;
  // Bytes of memory that messages of a communicator have taken so far: those of its connections' ends that were used.
  struct Memory {
    size_t kept = 0;      // until close(): the ends themselves, and rings that an adapter knows
    size_t rings = 0;     // what release() gives back
    size_t released = 0;  // what it has given back
  };
  virtual Memory memory(uint64_t communicator) const = 0;
  // When all messages of a communicator have come and been read, on all ranks: gives back rings' memory; it is taken again by messages.
  // reuse() comes first.
  virtual void release(uint64_t communicator) noexcept = 0;
  virtual void reuse(uint64_t communicator) noexcept = 0;
  // Frees its connections. Messages that still come for it are dropped. No end of it may be in use.
  virtual void close(uint64_t communicator) noexcept = 0;

  // Sleeping: becomes readable when progress() would move something, after arm() has said true. False: call progress() now.
  virtual int event_fd() const = 0;
  virtual bool arm() = 0;
};

}  // namespace muster
