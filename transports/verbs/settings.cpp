#include "transports/verbs/settings.h"

#include <algorithm>

#include "base/error.h"

namespace muster::verbs {
namespace {

constexpr uint8_t kLongestTimeout = 20;  // NCCL's

}  // namespace

Settings Settings::from(const Options& options) {
  const auto number = [&](const char* name, int64_t least, int64_t most) {
    const int64_t n = options.integer(name);
    if (n < least || n > most) fail(Result::invalid_usage, "{}={}: {} to {} is possible", name, n, least, most);
    return n;
  };
  Settings s;
  s.retries = static_cast<uint8_t>(number("NCCL_IB_RETRY_CNT", 0, 7));
  s.pkey_index = static_cast<uint16_t>(number("NCCL_IB_PKEY", 0, 65535));
  s.service_level = static_cast<uint8_t>(number("NCCL_IB_SL", 0, 15));
  s.traffic_class = static_cast<uint8_t>(number("NCCL_IB_TC", 0, 255));
  s.queues = static_cast<int>(number("NCCL_IB_QPS_PER_CONNECTION", 1, kMostQueues));
  s.relaxed_ordering = options.integer("NCCL_IB_PCI_RELAXED_ORDERING") != 0;

  const std::chrono::nanoseconds most =
      std::clamp<std::chrono::nanoseconds>(options.seconds("MUSTER_LINK_TIMEOUT"), std::chrono::seconds(1), std::chrono::hours(24));
  if (options.is_set("NCCL_IB_TIMEOUT"))
    s.timeout = static_cast<uint8_t>(number("NCCL_IB_TIMEOUT", 1, 31));
  else
    for (s.timeout = kLongestTimeout; s.until_silent() > most / 2;) --s.timeout;
  s.heartbeat = std::min<std::chrono::nanoseconds>(most / 20, std::chrono::seconds(1));
  s.anew = std::max(most - s.heartbeat - s.until_silent(), most / 4);
  return s;
}

}  // namespace muster::verbs
