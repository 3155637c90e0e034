// What NCCL_IB_* options ask for, but for the choice of ports (ports.h).
#pragma once

#include <chrono>
#include <cstdint>

#include "base/options.h"

namespace muster::verbs {

inline constexpr int kMostQueues = 8;  // per rail, NCCL_IB_QPS_PER_CONNECTION

struct Settings {
  uint8_t timeout = 18;      // 4.096 us by two to the power of this until a packet without answer is sent again
  uint8_t retries = 7;       // so often
  uint16_t pkey_index = 0;
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
  int queues = 1;            // pairs of each rail
  bool relaxed_ordering = true;

  // How MUSTER_LINK_TIMEOUT is used up when a peer is lost: it is spoken to so often, its silence is noticed when packets have
  // been sent for the last time, and then it has so long to be reached anew. All three together are no longer than that, unless
  // NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT alone make it longer.
  std::chrono::nanoseconds heartbeat{};  // of a connection that nothing is sent over: a rank that only waits must know of a death
  std::chrono::nanoseconds until_silent() const { return std::chrono::nanoseconds(uint64_t{4096} << timeout) * (retries + 1); }
  std::chrono::nanoseconds anew{};

  // Throws invalid_usage for what no adapter can do.
  static Settings from(const Options& options);
};

}  // namespace muster::verbs
