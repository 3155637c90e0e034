// The connections of one communicator that go by a network: to all its ranks, or to those that share no memory with this one.
#pragma once

#include <vector>

#include "transports/network.h"
#include "transports/transport.h"

namespace muster {

class NetworkTransport final : public Transport {
 public:
  struct Lanes {
    int count = 1;
    size_t slot_bytes = 0;
    size_t last_slot_bytes = 0;  // of the last lane
  };
  // `ranks`: the network's rank of each rank of the communicator. `bell`: this rank's. The network outlives it.
  NetworkTransport(Network& network, uint64_t communicator, std::vector<int> ranks, Lanes lanes, Doorbell* bell)
      : network_(network), communicator_(communicator), ranks_(std::move(ranks)), lanes_(lanes), bell_(bell) {}
  ~NetworkTransport() override { network_.close(communicator_); }

  std::string_view name() const override { return network_.name(); }
  size_t slot_bytes() const override { return lanes_.slot_bytes; }
  int lanes() const override { return lanes_.count; }
  SlotSender& sender(int peer, int lane, size_t) override { return network_.sender(wire(peer, lane), bell_); }
  SlotReceiver& receiver(int peer, int lane) override { return network_.receiver(wire(peer, lane), bell_); }
  bool progress() override { return network_.progress(communicator_); }
  void settle() noexcept override { network_.settle(communicator_); }
  void drain() noexcept { network_.drain(communicator_); }
  void release() noexcept { network_.release(communicator_); }
  void reuse() noexcept { network_.reuse(communicator_); }

 private:
  WireName wire(int peer, int lane) const {
    return {communicator_, ranks_[static_cast<size_t>(peer)], lane, lane == lanes_.count - 1 ? lanes_.last_slot_bytes : lanes_.slot_bytes};
  }

  Network& network_;
  const uint64_t communicator_;
  const std::vector<int> ranks_;
  const Lanes lanes_;
  Doorbell* const bell_;
};

}  // namespace muster
