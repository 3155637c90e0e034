// Moves messages between a box (far_box.h) and the network, in the direction of its end.
//
// Beside each message go its length and what the network carries for it: the line has its fingerprint.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "comm/cuda/far_box.h"
#include "transports/connection.h"

namespace muster::cuda {

// One thread.
class FarSender {
 public:
  // `shown`: what keeps the box's GPU memory known to the network, if it has any.
  FarSender(FarBox box, SlotSender& network, std::shared_ptr<void> shown)
      : box_(std::move(box)), shown_(std::move(shown)), network_(network) {}
  const FarBox& box() const { return box_; }
  // True if anything went. A slot is free again when the network has taken what was in it.
  bool move();
  // Whether the network has taken all that kernels have posted.
  bool done() const { return freed_ == box_.posted(); }

 private:
  void send(uint64_t n);
  FarBox box_;
  std::shared_ptr<void> shown_;
  SlotSender& network_;
  uint64_t given_ = 0;  // messages given to the network
  uint64_t freed_ = 0;  // and taken by it
};

// One thread.
class FarReceiver {
 public:
  FarReceiver(FarBox box, SlotReceiver& network) : box_(std::move(box)), network_(network) {}
  const FarBox& box() const { return box_; }
  // True if anything came. Throws internal_error for a message longer than a slot.
  bool move();

 private:
  void receive();
  FarBox box_;
  SlotReceiver& network_;
  uint64_t came_ = 0;  // messages
};

}  // namespace muster::cuda
