// A communicator's connections: to the ranks of this host through shared memory, to the others by the network.
#pragma once

#include <memory>

#include "comm/far_puts.h"
#include "comm/published.h"
#include "transports/network_transport.h"
#include "transports/shm/segment.h"

namespace muster {

class HostsTransport final : public Transport {
 public:
  // `far` and `puts`: null where all ranks are on this host. `ranks` outlives it.
  HostsTransport(const Published& ranks, std::unique_ptr<ShmTransport> near, std::unique_ptr<NetworkTransport> far,
                 std::unique_ptr<FarPuts> puts)
      : ranks_(ranks), near_(std::move(near)), far_(std::move(far)), puts_(std::move(puts)) {}

  std::string_view name() const override { return far_ ? far_->name() : near_->name(); }
  size_t slot_bytes() const override { return near_->slot_bytes(); }
  int lanes() const override { return near_->lanes(); }
  SlotSender& sender(int peer, int lane, size_t largest) override {
    return ranks_.is_here(peer) ? near_->sender(ranks_.place(peer), lane, largest) : far_->sender(peer, lane, largest);
  }
  SlotReceiver& receiver(int peer, int lane) override {
    return ranks_.is_here(peer) ? near_->receiver(ranks_.place(peer), lane) : far_->receiver(peer, lane);
  }
  bool progress() override {
    if (!far_) return false;
    const bool moved = far_->progress();
    return puts_->take_in() || moved;
  }
  void settle() noexcept override {
    if (far_) far_->settle();
  }

  // Before this rank says that it leaves: peers have what it sent them.
  void drain() noexcept {
    if (far_) far_->drain();
  }

  // When nothing is under way on any rank: gives back the memory of messages. That of this host is to be reserved again; reuse() when
  // all ranks could.
  void release_data() noexcept {
    near_->release_data();
    if (far_) far_->release();
  }
  void reuse() noexcept {
    if (far_) far_->reuse();
  }

  FarPuts* puts() { return puts_.get(); }  // null where all ranks are on this host
  ShmTransport& near() { return *near_; }
  const ShmTransport& near() const { return *near_; }

 private:
  const Published& ranks_;
  const std::unique_ptr<ShmTransport> near_;
  const std::unique_ptr<NetworkTransport> far_;
  const std::unique_ptr<FarPuts> puts_;
};

}  // namespace muster
