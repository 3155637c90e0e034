// Datagrams between ports of ranks that have no connection yet: an unreliable queue pair that anybody may send to.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "transports/verbs/adapter.h"

namespace muster::verbs {

// Where a peer's greeter is, and by which of its addresses.
struct GreeterAddress {
  Port port;
  size_t gid = 0;  // position in port.gids
  uint32_t queue = 0;
};

// The address of a remote port as queue pairs and datagrams want it. `local`: the port and GID that it is sent from.
ibv_ah_attr address_of(const Port& remote, size_t remote_gid, const Port& local, size_t local_gid, const Settings& settings);

class Greeter {
 public:
  static constexpr size_t kMost = 960;  // bytes of a datagram; every Ethernet takes them

  // At `port` of the adapter, which outlives it.
  Greeter(const Adapter& adapter, const Port& port, const Settings& settings);

  uint32_t queue() const { return pair_->qp_num; }
  int event_fd() const { return channel_->fd; }  // readable when something has come since the last arm()
  void arm();
  // Sends, or not: where the device has no room or the address can't be resolved nothing happens but that `why` says so.
  bool send(size_t gid, const GreeterAddress& to, std::string_view message, std::string& why);
  // Hands on what has come.
  void receive(const std::function<void(std::string_view message)>& take);

 private:
  static constexpr size_t kHeader = 40;  // in front of received datagrams: addresses
  static constexpr uint32_t kSlots = 64;
  static constexpr size_t kSlotBytes = 1024;
  static constexpr uint32_t kKey = 0x4d757374;  // any number that both have
  void receive_again(uint32_t slot);
  void reap();

  const Adapter& adapter_;
  const Port port_;
  const Settings settings_;
  Owned<ibv_comp_channel> channel_;
  Owned<ibv_cq> received_, sent_;
  Pages memory_;  // received slots, then those to send
  Owned<ibv_mr> key_;
  Owned<ibv_qp> pair_;
  std::vector<Owned<ibv_ah>> under_way_;  // by slot to send
};

}  // namespace muster::verbs
