// A network plugin of NCCL's as what joins hosts.
//
// To each peer a rank has a connection for records, each a message's header with a short payload behind it, and one per
// device for longer payloads, which go by them in turn; both ends count alike. It asks for their handles over TCP. A plugin's
// connections keep their order, and that is all that is asked of them: tags aren't used. A payload that lies in a connection's ring goes out from there, and
// from users' LastingMemory and from GPU memory, too; from other memory it is copied first. It is received where it belongs.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transports/net_plugin/connections.h"
#include "transports/net_plugin/meeting_point.h"
#include "transports/wired_network.h"

namespace muster {

class NetPluginNetwork final : public WiredNetwork {
 public:
  // Throws what the plugin returned, or system_error where it has no device that takes host memory.
  NetPluginNetwork(std::shared_ptr<const net_plugin::Plugin> plugin, const NetworkSetup& setup);
  ~NetPluginNetwork() override;

  std::string_view name() const override { return plugin_->name(); }
  size_t slot_bytes() const override { return slot_bytes_; }
  std::string address() const override;
  int event_fd() const override { return timer_.get(); }
  bool reads_gpu_memory() const override { return std::ranges::all_of(rails_, [](const auto& r) { return r.reads_gpus; }); }
  std::shared_ptr<void> show_gpu_memory(std::span<std::byte> memory) override;

  size_t rails() const { return rails_.size(); }

 private:
  // A connection that a peer makes.
  struct Inlet {
    void* listener = nullptr;  // until it is there
    std::unique_ptr<net_plugin::ReceiveComm> comm;
    bool greeted = false;      // it has proved to be that peer's
  };
  struct Arriving {
    WireHeader header;
    Landing landing;
  };
  struct PeerLink {
    std::deque<WireOp*> queue;  // not begun
    std::unique_ptr<net_plugin::Asking> asking;
    std::unique_ptr<net_plugin::SendComm> records;
    std::vector<std::unique_ptr<net_plugin::SendComm>> payloads;  // by rail
    bool wanted = false;        // also without anything to send
    bool connected = false;
    uint64_t sent = 0;  // payloads

    uint64_t asked = 0;         // number of the peer's question
    std::string handles;        // that it was answered with
    std::vector<Inlet> inlets;  // of records, then by rail
    std::vector<std::deque<Arriving>> arriving;  // by rail
    uint64_t received = 0;
  };

  bool poll() override;
  void post(WireOp& op) override;
  void expect(int peer) noexcept override {
    if (!lost_.contains(peer)) peers_[peer].wanted = true;
  }
  void disconnect(int peer) noexcept override;
  bool arm_events() override;
  std::shared_ptr<void> register_ring(std::span<std::byte> ring) override;

  std::string answer(const net_plugin::Question& question);
  void ask(int peer, PeerLink& p);
  bool connect(int peer, PeerLink& p);
  bool greet(int peer, Inlet& in, size_t index);
  void begin(PeerLink& p, WireOp& op);
  bool send_some(int peer, PeerLink& p);
  bool receive_some(int peer, PeerLink& p);
  bool receive_payloads(PeerLink& p);
  void close_inlets(PeerLink& p) noexcept;
  void forget(std::byte* memory) noexcept;
  std::span<std::byte> gpu_memory_of(const std::byte* payload) const;  // empty: it lies in the host's
  void finish_done();

  const std::shared_ptr<const net_plugin::Plugin> plugin_;
  void* context_ = nullptr;
  size_t slot_bytes_ = 256 << 10;
  std::vector<net_plugin::Device> rails_;
  std::vector<std::span<std::byte>> gpu_memory_;  // that was shown
  net_plugin::MeetingPoint meeting_;
  std::map<int, PeerLink> peers_;
  std::set<int> lost_;  // connections that were given up: the peer is told so when it asks again
  std::vector<WireOp*> done_;
  bool busy_ = false;     // what finished() posts waits for the next round
  bool closing_ = false;
  uint64_t polls_ = 0, questions_ = 0;
  Fd timer_;  // plugins have nothing to wait for
};

}  // namespace muster
