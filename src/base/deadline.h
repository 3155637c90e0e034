// A point in time after which waiting is an error.
#pragma once

#include <algorithm>
#include <chrono>

namespace muster {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  static Deadline after(std::chrono::nanoseconds d) {
    Deadline r;
    const auto now = Clock::now();
    r.at_ = d > Clock::time_point::max() - now ? Clock::time_point::max() : now + std::chrono::duration_cast<Clock::duration>(d);
    return r;
  }
  static Deadline never() { return Deadline{}; }

  bool expired() const { return at_ != Clock::time_point::max() && Clock::now() >= at_; }
  std::chrono::nanoseconds left() const {
    if (at_ == Clock::time_point::max()) return std::chrono::nanoseconds::max();
    return std::max(std::chrono::nanoseconds(0), std::chrono::duration_cast<std::chrono::nanoseconds>(at_ - Clock::now()));
  }
  // For poll(2): milliseconds, rounded up so that a wait is never cut to a busy loop; -1 for never.
  int poll_ms() const {
    if (at_ == Clock::time_point::max()) return -1;
    const auto ms = (left().count() + 999999) / 1000000;
    return static_cast<int>(std::min<long long>(ms, 1 << 30));
  }

 private:
  Clock::time_point at_ = Clock::time_point::max();
};

}  // namespace muster
