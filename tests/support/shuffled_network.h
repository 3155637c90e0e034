// A network between threads of one process that delivers in any order and reads what is sent as late as it may.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "transports/wired_network.h"

namespace muster::test {

// What joins them.
struct ShuffledSwitch {
  struct Parcel {
    WireHeader header;
    std::vector<std::byte> payload;
  };
  explicit ShuffledSwitch(int n) : inbox(static_cast<size_t>(n)), dead(static_cast<size_t>(n)) {
    for (int r = 0; r < n; ++r) bells.emplace_back(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  }
  void put(int to, Parcel p) {
    const std::lock_guard lock(mutex);
    inbox[static_cast<size_t>(to)].push_back(std::move(p));
    const uint64_t one = 1;
    [[maybe_unused]] const auto n = write(bells[static_cast<size_t>(to)].get(), &one, sizeof one);
  }
  void kill(int rank) {
    const std::lock_guard lock(mutex);
    dead[static_cast<size_t>(rank)] = true;
  }

  std::mutex mutex;
  std::vector<std::vector<Parcel>> inbox;  // by rank
  std::vector<bool> dead;
  std::vector<Fd> bells;
};

inline NetworkSetup network_setup(int rank, int nranks) {
  NetworkSetup s;
  s.rank = rank;
  s.nranks = nranks;
  s.secret = [](int from, int to) { return 0x5eed0000ULL + static_cast<uint64_t>(from) * 1000 + static_cast<uint64_t>(to); };
  s.rank_name = [](int r) { return "rank " + std::to_string(r); };
  return s;
}

class ShuffledNetwork final : public WiredNetwork {
 public:
  ShuffledNetwork(ShuffledSwitch& hub, int rank, int nranks, unsigned seed)
      : WiredNetwork(network_setup(rank, nranks)), hub_(hub), random_(seed) {
    meet(std::vector<std::string>(static_cast<size_t>(nranks), "here"));
  }
  ~ShuffledNetwork() override {
    const std::lock_guard lock(mutex_);
    say_goodbye();
    free_ends();
    hub_.kill(setup().rank);
  }
  std::string_view name() const override { return "shuffled"; }
  size_t slot_bytes() const override { return 4096; }
  std::string address() const override { return "here"; }
  int event_fd() const override { return hub_.bells[static_cast<size_t>(setup().rank)].get(); }

 protected:
  bool arm_events() override {
    uint64_t n = 0;
    [[maybe_unused]] const auto r = read(event_fd(), &n, sizeof n);
    const std::lock_guard lock(hub_.mutex);
    return pending_.empty() && hub_.inbox[static_cast<size_t>(setup().rank)].empty();
  }
  void post(WireOp& op) override {
    pending_.push_back(&op);
    if (random_() % 2) send_some();
  }
  void disconnect(int peer) noexcept override {
    std::vector<WireOp*> ops;
    std::erase_if(pending_, [&](WireOp* op) { return op->peer == peer && (ops.push_back(op), true); });
    for (WireOp* op : ops) finished(*op);
  }
  bool poll() override {
    bool moved = send_some(), all = false;
    std::vector<ShuffledSwitch::Parcel> come;
    {
      const std::lock_guard lock(hub_.mutex);
      auto& box = hub_.inbox[static_cast<size_t>(setup().rank)];
      std::shuffle(box.begin(), box.end(), random_);
      const size_t n = box.empty() ? 0 : random_() % box.size() + 1;
      std::move(box.end() - static_cast<long>(n), box.end(), std::back_inserter(come));
      box.resize(box.size() - n);
      all = box.empty();
    }
    for (const auto& p : come) arrived(p.header, p.payload.data(), p.payload.size());
    for (size_t r = 0; all && r < hub_.dead.size(); ++r)  // after all that it sent
      if (is_dead(r)) {
        fail_peer(static_cast<int>(r), "its cable was cut (ECONNRESET)");
        disconnect(static_cast<int>(r));
      }
    return moved || !come.empty();
  }

 private:
  bool is_dead(size_t rank) {
    const std::lock_guard lock(hub_.mutex);
    return hub_.dead[rank];
  }
  bool send_some() {
    std::shuffle(pending_.begin(), pending_.end(), random_);
    size_t n = pending_.empty() ? 0 : random_() % pending_.size() + 1;
    const bool moved = n > 0;
    for (; n > 0 && !pending_.empty(); --n) {  // finished() may post, and post() may send
      WireOp* const op = pending_.back();
      pending_.pop_back();
      hub_.put(op->peer, {op->header, {op->payload, op->payload + op->header.bytes}});
      finished(*op);
    }
    return moved;
  }

  ShuffledSwitch& hub_;
  std::mt19937 random_;
  std::vector<WireOp*> pending_;
};

// Networks of ranks that are threads end as those of processes do: at once, since each waits for the others' goodbyes.
template <class N>
void end_together(std::vector<std::unique_ptr<N>>* networks) {
  std::vector<std::thread> threads;
  for (auto& network : *networks) threads.emplace_back([&network] { network.reset(); });
  for (auto& t : threads) t.join();
}

// Ranks 0..n-1 of one switch.
struct ShuffledRanks {
  explicit ShuffledRanks(int n, unsigned seed = 0) : hub(n) {
    for (int r = 0; r < n; ++r) networks.push_back(std::make_unique<ShuffledNetwork>(hub, r, n, seed + static_cast<unsigned>(r + 1)));
  }
  ~ShuffledRanks() { end_together(&networks); }
  ShuffledNetwork& operator[](int r) { return *networks[static_cast<size_t>(r)]; }

  ShuffledSwitch hub;
  std::vector<std::unique_ptr<ShuffledNetwork>> networks;
};

}  // namespace muster::test
