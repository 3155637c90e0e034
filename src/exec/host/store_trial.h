// Finds by trying how slots are best written between the cores that ranks run on now.
//
// Past the caches, a message goes through memory; through them, its lines are taken out of the writer's cache. Which is
// faster depends on whether the cores share a cache: past them has been up to five times as fast as bench/loop, which
// writes through them, where they don't, and up to 1.8 times as slow where they do. In a virtual machine it changes while
// the program runs. All ranks count the same calls, so in a trial all of them write the same way, and each judges by the
// time of the whole call.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace muster {

class StoreTrial {
 public:
  // Whether the call that begins writes its slots past the caches.
  bool begin() {
    if (++call_ > period_) call_ = 1;
    if (call_ > kTrialCalls) return streamed_;
    if (call_ % 2 == 0) since_ = Clock::now();  // the first call of each way only changes where the lines are
    return call_ <= 2;
  }
  void end() {
    if (call_ > kTrialCalls || call_ % 2 != 0) return;
    took_[call_ / 2 - 1] = Clock::now() - since_;
    if (call_ == kTrialCalls) decide();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr uint32_t kTrialCalls = 4;
  // A trial's slower half costs at most a few per cent of the first period and fewer of the later ones.
  static constexpr uint32_t kFirstPeriod = 64, kLongestPeriod = 2048;

  void decide() {
    const bool before = streamed_;
    if (took_[0] * 10 < took_[1] * 9) streamed_ = true;
    if (took_[1] * 10 < took_[0] * 9) streamed_ = false;
    period_ = streamed_ == before ? std::min(period_ * 2, kLongestPeriod) : kFirstPeriod;
  }

  bool streamed_ = true;
  uint32_t call_ = 0, period_ = kFirstPeriod;
  Clock::time_point since_;
  Clock::duration took_[2] = {};  // streamed, cached
};

}  // namespace muster
