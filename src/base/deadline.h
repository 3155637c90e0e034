// A point in time after which waiting is an error.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

namespace muster {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Nanoseconds = std::chrono::nanoseconds;
  static Deadline after(Nanoseconds d) {
    Deadline r;
    r.at_ = sum(Clock::now(), d);
    return r;
  }
  static Deadline never() { return Deadline{}; }

  // The same, but it has come as soon as the flag is raised, which must outlive it and its copies.
  Deadline or_when(const std::atomic<bool>& raised) const {
    Deadline r = *this;
    r.raised_ = &raised;
    return r;
  }
  // The same, whatever flag is raised: for what must not be broken off halfway.
  Deadline by_clock() const {
    Deadline r = *this;
    r.raised_ = nullptr;
    return r;
  }
  // The same, but `d` from now at the latest; or `d` later.
  Deadline within(Nanoseconds d) const {
    Deadline r = *this;
    r.at_ = std::min(at_, sum(Clock::now(), d));
    return r;
  }
  Deadline later_by(Nanoseconds d) const {
    Deadline r = *this;
    r.at_ = sum(at_, d);
    return r;
  }

  bool cancelled() const { return raised_ && raised_->load(std::memory_order_acquire); }
  bool expired() const { return cancelled() || (at_ != Clock::time_point::max() && Clock::now() >= at_); }
  Nanoseconds left() const {
    if (cancelled()) return Nanoseconds(0);
    if (at_ == Clock::time_point::max()) return Nanoseconds::max();
    return std::max(Nanoseconds(0), std::chrono::duration_cast<Nanoseconds>(at_ - Clock::now()));
  }
  // How long to sleep before it must be asked again: nothing wakes a sleeper when the flag is raised.
  Nanoseconds nap() const { return raised_ ? std::min<Nanoseconds>(left(), std::chrono::milliseconds(20)) : left(); }
  // The same for poll(2): milliseconds, rounded up so that a wait is never cut to a busy loop; -1 for never.
  int poll_ms() const {
    const Nanoseconds n = nap();
    if (n == Nanoseconds::max()) return -1;
    return static_cast<int>(std::min<long long>((n.count() + 999999) / 1000000, 1 << 30));
  }

 private:
  static Clock::time_point sum(Clock::time_point t, Nanoseconds d) {
    return d > Clock::time_point::max() - t ? Clock::time_point::max() : t + std::chrono::duration_cast<Clock::duration>(d);
  }
  Clock::time_point at_ = Clock::time_point::max();
  const std::atomic<bool>* raised_ = nullptr;
};

}  // namespace muster
