// Two ranks of a network send each other messages of all sizes, and look at every byte.
#pragma once

#include <atomic>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "transports/network.h"

namespace muster::test {

inline constexpr size_t kLargest = 16384;
inline constexpr size_t kSizes[] = {0, 1, 8, 16, 17, 31, 32, 33, 64, 1000, 1024, 1025, 5000, 8192, 8193, kLargest - 1, kLargest};

inline std::byte content(uint64_t number, size_t i) { return static_cast<std::byte>(number * 131 + i * 7 + i / 256); }

// Size of message n: short ones first, so that rings grow.
inline size_t size_of_message(uint64_t n) {
  std::mt19937 random(static_cast<unsigned>(n));
  return kSizes[random() % (n < 300 ? 11 : n < 600 ? 14 : std::size(kSizes))];
}

// Sends messages first..last, every third long one from memory of its own; stops when it can't go on.
class Source {
 public:
  Source(SlotSender& to, uint64_t last) : to_(to), last_(last) {}
  bool done() const { return next_ > last_ && to_.sent() == to_.committed(); }
  bool advance() {
    bool moved = false;
    while (!own_.empty() && to_.sent() >= own_.front().number) {
      std::fill(own_.front().memory.begin(), own_.front().memory.end(), std::byte{0xee});  // it is ours again
      own_.pop_front();
    }
    for (; next_ <= last_ && to_.ready(); ++next_, moved = true) {
      const size_t bytes = size_of_message(next_);
      if (bytes > 0) {
        std::byte* at = to_.acquire(bytes);
        if (bytes > kInlineBytes && next_ % 3 == 0) {
          own_.push_back({next_, std::vector<std::byte>(bytes)});
          at = own_.back().memory.data();
          to_.send_from(at);
        }
        for (size_t i = 0; i < bytes; ++i) at[i] = content(next_, i);
      }
      to_.commit(next_ * 77, false);
    }
    return moved;
  }

 private:
  struct Own {
    uint64_t number;
    std::vector<std::byte> memory;
  };
  SlotSender& to_;
  uint64_t next_ = 1, last_;
  std::deque<Own> own_;
};

class Sink {
 public:
  Sink(SlotReceiver& from, uint64_t last) : from_(from), last_(last) {}
  bool done() const { return next_ > last_ && from_.sent() == from_.credits(); }
  bool advance() {
    bool moved = false;
    for (; next_ <= last_ && from_.ready(); ++next_, moved = true) {
      const size_t bytes = size_of_message(next_);
      good = good && from_.fingerprint() == next_ * 77;
      const std::byte* at = bytes ? from_.peek(bytes) : nullptr;
      for (size_t i = 0; i < bytes; ++i) good = good && at[i] == content(next_, i);
      from_.release();
    }
    return moved;
  }
  bool good = true;

 private:
  SlotReceiver& from_;
  uint64_t next_ = 1, last_;
};

// `at_work`: threads that aren't finished, if others need this one's help to. Rank `rank` of two exchanges `messages` with the other one, in some lanes of a communicator of its own.
inline void exchange(Network& network, int rank, uint64_t communicator, uint64_t messages, bool* good,
                     std::atomic<int>* at_work = nullptr) {
  constexpr int kLanes = 2;
  Doorbell bell{};
  struct Closing {
    ~Closing() { network.close(communicator); }  // before the bell goes
    Network& network;
    uint64_t communicator;
  } const closing{network, communicator};
  std::vector<Source> sources;
  std::vector<Sink> sinks;
  for (int lane = 0; lane < kLanes; ++lane) {
    const WireName name{communicator, 1 - rank, lane, kLargest};
    sources.emplace_back(network.sender(name, &bell), messages);
    sinks.emplace_back(network.receiver(name, &bell), messages);
  }
  for (bool all_done = false; !all_done;) {
    bool moved = network.progress(communicator);
    all_done = true;
    for (auto& s : sources) moved |= s.advance(), all_done = all_done && s.done();
    for (auto& s : sinks) moved |= s.advance(), all_done = all_done && s.done();
    if (!moved) std::this_thread::yield();
  }
  // What the network has taken may need its help yet, as a process's helper thread gives it.
  if (at_work)
    for (--*at_work; *at_work > 0;)
      if (!network.tend()) std::this_thread::yield();
  *good = sinks[0].good && sinks[1].good;
}

}  // namespace muster::test
