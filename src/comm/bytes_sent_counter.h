// What a communicator's rank has sent so far: one thread adds, any reads.
#pragma once

#include <atomic>

#include "muster/bytes_sent.h"

namespace muster {

class BytesSentCounter {
 public:
  void add(const BytesSent& t) {
    add(shared_memory_, t.shared_memory);
    add(direct_, t.direct);
    add(network_, t.network);
    add(gpu_, t.gpu);
  }
  BytesSent read() const {
    constexpr auto kRelaxed = std::memory_order_relaxed;
    return {shared_memory_.load(kRelaxed), direct_.load(kRelaxed), network_.load(kRelaxed), gpu_.load(kRelaxed)};
  }

 private:
  using Counter = std::atomic<uint64_t>;
  static void add(Counter& to, uint64_t bytes) {  // no locked instruction: nobody else adds
    to.store(to.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  Counter shared_memory_{0}, direct_{0}, network_{0}, gpu_{0};
};

}  // namespace muster
