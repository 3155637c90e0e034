// What all networks have in common: connections' memory, who is who, and what is to be told about failures. A transport
// derives from it and moves messages: post() one out; arrived() for each that comes in.
//
// Members that begin with "Transport:" are called with the lock held, and those for transports are to be called so, which
// is: within one of them.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "transports/network.h"
#include "transports/wire_end.h"

namespace muster {

class WiredNetwork : public Network {
 public:
  SlotSender& sender(const WireName& name, Doorbell* bell) final;
  SlotReceiver& receiver(const WireName& name, Doorbell* bell) final;
  bool progress(uint64_t communicator) final;
  uint64_t looks() const final { return looks_.load(std::memory_order_relaxed); }
  bool tend() noexcept final;
  void settle(uint64_t communicator) noexcept final;
  void drain(uint64_t communicator) noexcept final;
  Memory memory(uint64_t communicator) const final;
  void release(uint64_t communicator) noexcept final;
  void reuse(uint64_t communicator) noexcept final;
  void close(uint64_t communicator) noexcept final;
  bool arm() final;
  void meet(std::vector<std::string> addresses) final;

  uint64_t strangers() const { return strangers_; }  // messages dropped because they didn't prove who they are from
  size_t ends() const;                               // in use, or not yet free

 protected:
  explicit WiredNetwork(const NetworkSetup& setup);
  ~WiredNetwork() override;

  // Transport: moves what can be moved; true if anything was. May throw where the network as a whole is broken.
  virtual bool poll() = 0;
  // Transport: sends op.header and op.payload to op.peer, which it connects to on first use. Both stay as they are until
  // finished(op), which may be called at once. To one peer all may arrive in any order.
  virtual void post(WireOp& op) = 0;
  // Transport: this rank will receive from that one, or has: connects to it, so that its death is noticed. Doesn't throw: what
  // is wrong shows when it is sent to.
  virtual void expect(int) noexcept {}
  // Transport: drops the connection to a peer. When it returns all operations to it are finished, and none is landing.
  virtual void disconnect(int peer) noexcept = 0;
  // Transport: see event_fd().
  virtual bool arm_events() = 0;
  // Transport: makes a ring known to the adapter, for as long as the result lives.
  virtual std::shared_ptr<void> register_ring(std::span<std::byte>) { return {}; }
  // Transport: what the sending end needs to write into this receiving end's ring itself, kInlineBytes at most; empty: nothing.
  virtual std::string describe_ring(const WireEnd&) { return {}; }

  // --- for transports ---
  const NetworkSetup& setup() const { return setup_; }
  const std::string& address_of(int peer) const { return addresses_[static_cast<size_t>(peer)]; }
  // The op's memory is free, and it needs no more help from this rank: also when it failed.
  void finished(WireOp& op) noexcept;
  // Something has come. land(): where the payload belongs, null if there is none or it is to be dropped (`known` false).
  // Then, when the payload lies there, landed(); or lost(), when it never will.
  struct Landing {
    bool known = false;
    std::byte* at = nullptr;
    WireEnd* end = nullptr;
  };
  Landing land(const WireHeader& header);
  void landed(const WireHeader& header, const Landing& landing);
  void lost(const Landing& landing) noexcept;
  // What messages from a peer carry, and those to it.
  struct Secrets {
    uint64_t in, out;
  };
  const Secrets& secrets(int peer);
  // Somebody who isn't of this job has sent something, or came.
  void dropped_stranger();
  // All three for a payload that lies elsewhere.
  void arrived(const WireHeader& header, const void* payload, size_t bytes);
  // The connection is broken; once per peer counts. `why`: what failed, with names and numbers, and what to do about it.
  void fail_peer(int peer, const std::string& why);
  // For a transport's destructor, before it closes its connections: peers hear that this rank leaves, and it hears that all it
  // sent has come. Waits for a second at most.
  void say_goodbye() noexcept;
  // The same: nothing refers to ends any more.
  void free_ends() noexcept;

  // Held in all calls of transports.
  mutable std::mutex mutex_;

 private:
  friend class WireEnd;
  using WireClock = std::chrono::steady_clock;
  // For a peer that takes nothing, when nothing but tidiness depends on it.
  static constexpr std::chrono::seconds kWirePatience{1};
  using Key = std::tuple<uint64_t, int, int, WireEnd::Way>;  // communicator, peer, lane
  WireEnd& end(WireEnd::Way way, const WireName& name);
  WireEnd* end_of(const WireHeader& header);
  WireHeader header_to(int peer, WireKind kind, const WireName& name);
  void post_op(WireOp& op);
  void require_reachable(const WireName& name) const;
  void throw_failures(uint64_t communicator) const;
  bool busy(uint64_t communicator) const;
  bool can_hear(int peer) const { return !failures_.contains(peer) && !left_.contains(peer) && !gone_.contains(peer); }
  void message_came(WireEnd& end, uint64_t number);
  void answer_flush(const WireHeader& flush);
  void sweep() noexcept;

  const NetworkSetup setup_;
  std::vector<std::string> addresses_;
  std::vector<std::optional<Secrets>> secrets_;  // by peer, made on first use
  std::map<Key, std::unique_ptr<WireEnd>> ends_;
  std::vector<std::unique_ptr<WireEnd>> closed_ends_;  // with something under way
  std::set<uint64_t> closed_;                          // communicators
  std::set<int> acquainted_;                           // peers that were sent to or heard from
  std::set<int> left_;                                 // said goodbye
  std::set<int> gone_;                                 // answered this rank's goodbye, or can't any more
  std::map<int, std::string> failures_;  // by peer
  std::set<uint64_t> looked_behind_failure_;  // communicators whose thread has looked at what had come before the last of them
  std::map<int, WireOp> goodbyes_, farewells_;
  std::list<WireOp> flush_answers_;
  std::atomic<uint64_t> looks_{0};
  std::atomic<uint64_t> strangers_{0};
};

}  // namespace muster
