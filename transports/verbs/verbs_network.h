// RDMA by libibverbs: reliable queue pairs to each peer, over as many pairs of ports as both ranks have. A payload is written
// into the peer's ring, and the line sent behind it by the same queue pair; the line's completion says that both are there,
// whatever order packets took. Messages go to all queue pairs in turn.
//
// A thread meets peers (hello.h): so a rank answers, and a path is proved, whatever the rank's own threads do.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>

#include "base/fd.h"
#include "transports/verbs/hello.h"
#include "transports/registrations.h"
#include "transports/verbs/queue_pair.h"
#include "transports/wired_network.h"

namespace muster::verbs {

class VerbsNetwork final : public WiredNetwork {
 public:
  // Throws system_error where libibverbs, devices or a port that serves are missing, saying which and why.
  explicit VerbsNetwork(const NetworkSetup& setup);
  ~VerbsNetwork() override;

  std::string_view name() const override { return "verbs"; }
  size_t slot_bytes() const override { return 128 << 10; }
  std::string address() const override { return address_; }
  int event_fd() const override { return events_.get(); }

  const std::vector<Port>& ports() const { return ports_; }  // in use, best first
  uint64_t sent_in_place() const { return sent_in_place_; }  // payloads that were sent from the program's own memory

 private:
  using Clock = std::chrono::steady_clock;
  struct Candidate {
    Path path;
    bool works = false;
    std::string why = "no answer";
  };
  // What a connection that broke had under way, by queue pair.
  struct Unsettled {
    std::deque<QueuePair::Posted> posted;
    uint32_t finished = 0;
  };
  struct PeerLink {
    enum class State : uint8_t {
      meeting,  // the opener probes; the answerer asks for it
      opening,  // opener: it has said `open`
      opened,   // answerer: it has said `opened`, and waits for the first message
      ready,
    };
    int peer = -1;
    State state = State::meeting;
    bool wanted = false;  // by this rank; else the answerer only answers
    std::vector<KnownPort> ports;
    std::vector<Candidate> candidates;
    uint32_t epoch = 0;
    Path way;  // by which open and opened go
    std::vector<std::unique_ptr<QueuePair>> pairs;
    int queues = 0;  // per rail
    size_t turn = 0;
    std::deque<WireOp*> waiting;
    std::string broken;  // why, if it must be made anew
    bool left = false;   // the peer has said goodbye: what breaks then is no loss
    bool moved = false;  // anything, since it was made
    int fruitless = 0;   // times in a row that it broke before anything moved
    uint32_t base = 0;   // epoch that was used last
    std::array<uint32_t, kMostPairs> base_received{};
    std::vector<Unsettled> unsettled;
    Clock::time_point since;  // it has been wanted, or broken
    Clock::time_point first_echo, said, next_try = Clock::time_point::max();
    Clock::duration pause{};
    bool warned = false;
  };
  struct Busy {
    std::unique_ptr<Adapter> adapter;
    std::unordered_map<uint32_t, std::pair<PeerLink*, QueuePair*>> pairs;  // by number
    uint32_t under_way = 0;                                               // completions to come
  };
  // Of memory that is registered.
  struct Keys {
    std::vector<Owned<ibv_mr>> by_adapter;
  };

  bool poll() override;
  void post(WireOp& op) override;
  void disconnect(int peer) noexcept override;
  bool arm_events() override;
  std::shared_ptr<void> register_ring(std::span<std::byte> ring) override;
  std::string describe_ring(const WireEnd& end) override;

  // verbs_network.cpp: messages
  bool take_completions();
  bool take_received(Busy& b);
  bool take_sent(Busy& b);
  void take_message(PeerLink& link, const std::byte* message, size_t bytes);
  void sending_failed(Busy& b, PeerLink& link, QueuePair& pair, const ibv_wc& wc);
  std::shared_ptr<const Keys> register_everywhere(std::span<const std::byte> memory, Adapter::Use use) const;
  bool try_post(PeerLink& link, WireOp& op);
  QueuePair::Source source_of(const WireOp& op, size_t adapter);
  void flush(PeerLink& link);
  std::string where(const PeerLink& link, const Path& path) const;

  // meeting.cpp: connections are made
  PeerLink& link_to(int peer);
  void make_pairs(PeerLink& link, std::span<const Path> rails, int queues);
  bool connect_pairs(PeerLink& link, const Hello& h);
  void became_ready(PeerLink& link);
  Hello hello(const PeerLink& link, Hello::Kind kind) const;
  bool say(const std::vector<KnownPort>& to, Hello h, const Path& path, std::string& why);
  void heard(Hello h);
  void heard_echo(PeerLink& link, const Hello& h);
  void heard_open(PeerLink& link, const Hello& h);
  void open(PeerLink& link);
  void try_again(PeerLink& link, Clock::time_point now);
  std::string tried(const PeerLink& link) const;
  bool opens(int peer) const { return setup().rank < peer; }
  void meet_peers();           // the thread
  Clock::time_point attend();  // what it does; until when there is nothing more to do, unless something comes
  void wake() noexcept;

  // breaking.cpp: connections break
  void beat();
  void take_events();
  void port_failed(size_t adapter, int port, const char* event);
  void meet_anew();  // those that broke
  void retire(PeerLink& link);
  void settle_old(PeerLink& link, const Hello& h);
  void drop(PeerLink& link) noexcept;
  void give_up(PeerLink& link, const std::string& why);

  const Settings settings_;
  const Clock::duration patience_;  // for a peer's first answer
  std::vector<Busy> adapters_;
  std::optional<Registrations> registrations_;  // of the program's memory
  std::atomic<uint64_t> sent_in_place_{0};
  std::vector<Port> ports_;
  std::vector<size_t> adapter_of_;  // by port
  std::vector<std::unique_ptr<Greeter>> greeters_;
  std::string address_;
  Fd events_;
  std::map<int, std::unique_ptr<PeerLink>> links_;
  std::set<int> gone_;  // peers whose connection was given up
  bool any_broken_ = false;
  Clock::time_point next_beat_ = Clock::time_point::min();
  uint32_t psn_ = 0;
  Fd wake_;
  std::atomic<bool> attention_{false};  // the thread waits for the lock
  bool stop_ = false;
  std::thread thread_;
};

// Throws as the constructor does.
std::unique_ptr<Network> make_verbs_network(const NetworkSetup& setup);

// Why this host can't use RDMA as the options wish; empty: it can, as far as can be told without a peer.
std::string verbs_problem(const Options& options);

}  // namespace muster::verbs
