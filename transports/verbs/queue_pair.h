// A reliable connection between a local and a remote port.
#pragma once

#include <deque>

#include "transports/verbs/greeter.h"
#include "transports/wire_end.h"

namespace muster::verbs {

class QueuePair {
 public:
  // Throws system_error where the device has no room for one.
  QueuePair(const Adapter& adapter, size_t adapter_index, const Port& port, const Path& path, const Settings& settings);

  const Path path;             // as this rank sees it
  const size_t adapter_index;  // of this rank's adapters
  uint32_t number() const { return pair_->qp_num; }
  // errno of what failed, 0: connected. `first`: number of the first packet, both ways.
  int connect(const Port& remote, uint32_t remote_pair, uint32_t first);
  // Nothing is sent or received any more; what was under way completes as flushed.
  void stop() noexcept;

  bool has_room() const { return work_ + 2 <= kDepth; }
  // Where a payload is, and what keeps it registered while it is read.
  struct Source {
    const std::byte* at = nullptr;
    uint32_t key = 0;
    std::shared_ptr<const void> registration;  // null: the ring's, which outlasts its messages
  };
  // Writes header.bytes from `payload` to `at` in the peer's memory, then sends the header, which the peer's adapter delivers
  // after the payload. Throws system_error if the device refuses.
  void post(WireOp& op, Source payload, uint64_t at, uint32_t remote_key);
  void post_greeting();   // a message without content: the first, by which the peer knows that it may send
  void post_heartbeat();  // what the peer's adapter answers, and nobody sees
  // The oldest of what was posted has been delivered; null: it was no message of a connection's.
  WireOp* delivered();
  // The oldest will never be.
  WireOp* refused();

  struct Posted {
    WireOp* op;    // null: a greeting or a heartbeat
    bool message;  // the peer counts it
    std::shared_ptr<const void> registration;  // of what it is sent from
  };
  std::deque<Posted> posted;  // oldest first
  uint32_t finished = 0;      // messages of all posted
  uint32_t received = 0;      // messages

 private:
  void post_bare(ibv_wr_opcode what);
  static constexpr uint32_t kDepth = 256;
  const Port port_;
  const Settings settings_;
  const Library& library_;
  const bool endless_retries_;
  Owned<ibv_qp> pair_;
  uint32_t work_ = 0;
};

}  // namespace muster::verbs
