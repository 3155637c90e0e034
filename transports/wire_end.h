// One end of a connection to another host: its lines and ring, of which the other end has a copy, and what it has under way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/math.h"
#include "transports/network.h"
#include "transports/wire_message.h"

namespace muster {

class WireEnd;
class WiredNetwork;

// One message on its way out.
struct WireOp {
  WireHeader header{};
  const std::byte* payload = nullptr;  // header.bytes of it
  int peer = -1;
  WireEnd* end = nullptr;  // null: a goodbye
  bool posted = false;     // and not finished
  void* transport = nullptr;  // the transport's own
};

// Messages of the largest size that a ring has room for. They are copied out soon after they have come, and a ring that
// stays in the cache is read faster.
inline constexpr size_t kWireMessages = 8;

class WireEnd final : public Wire {
 public:
  enum class Way : uint8_t { out, in };
  // A ring for messages of up to `slot_bytes`.
  static size_t ring_bytes_for(size_t slot_bytes);

  // Throws system_error where memory is short.
  WireEnd(WiredNetwork& network, Way way, const WireName& name);
  ~WireEnd();
  WireEnd(const WireEnd&) = delete;
  WireEnd& operator=(const WireEnd&) = delete;

  void send(const SlotLine& line, size_t offset, const std::byte* from, size_t bytes) noexcept override;
  void give_credit(const CreditLine& credit) noexcept override;

  // --- for transports ---
  const WireName& name() const { return name_; }
  Way way() const { return way_; }
  std::span<std::byte> ring() const { return {ring_, ring_bytes_}; }
  Network::Memory memory() const;  // its own, and the pages of the ring that were used or are locked
  void release() noexcept;         // nothing of the ring is needed any more
  void reuse() noexcept { released_ = 0; }
  std::shared_ptr<void> registration;  // of the ring: what WiredNetwork::register_ring returned
  bool knows_peer_ring = false;        // of a sending end: the receiver has said where its ring is
  std::byte peer_ring[kInlineBytes] = {};

 private:
  friend class WiredNetwork;
  void uses(size_t offset, size_t bytes) {
    used_from_ = std::min(used_from_, offset);
    used_to_ = std::max(used_to_, offset + bytes);
  }
  size_t used() const { return used_to_ > 0 ? align_up(used_to_, 4096) - used_from_ / 4096 * 4096 : 0; }
  WiredNetwork& network_;
  const Way way_;
  const WireName name_;
  ConnectionLines lines_{};
  std::byte* ring_ = nullptr;
  const size_t ring_bytes_;
  Doorbell nobody_{};         // the peer is rung by its own network
  Doorbell* bell_ = nullptr;  // this rank's
  std::optional<SlotSender> sender_;
  std::optional<SlotReceiver> receiver_;

  WireOp messages_[kSlots];   // by line
  WireOp credit_, ring_says_, flush_;
  uint64_t early_ = 0;        // bit i: message done_ + 2 + i is on its way, though done_ + 1 isn't; or has come, for come_
  uint64_t sent_ = 0;         // of a sending end: messages
  uint64_t come_ = 0;         // messages that have come, from the first on; of a sending end: that it was told have
  uint64_t flush_wanted_ = 0; // of a receiving end: the number of the flush to be answered; 0: none
  uint64_t credits_ = 0;      // given
  bool credit_waits_ = false; // newer than the one under way
  size_t used_from_ = SIZE_MAX, used_to_ = 0;  // bytes of the ring in which messages have been
  size_t released_ = 0;       // bytes of that which were given back
  uint32_t under_way_ = 0;    // messages out, and payloads landing
};

}  // namespace muster
