// How a rank waits for its peers: poll, then yield, then sleep, by how many ranks share its cores.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>

#include "transports/connection.h"

namespace muster {

struct WaitPolicy {
  // Passes before the first yield: adapted to what is met, up to most_polls. A peer that shares the core now can only
  // run when we leave it; the scheduler decides that, whatever the number of cores.
  uint32_t polls = 0;
  uint32_t most_polls = 0;
  uint32_t yields = 0;  // passes with sched_yield before sleeping
  bool sleeps = true;

  // `mode`: MUSTER_WAIT. Throws invalid_usage for another word.
  static WaitPolicy choose(std::string_view mode, int ranks, double cores);
};

// Lets sleepers do without a fence in Doorbell::ring(): true if the kernel can (membarrier), else sleeps are short.
bool enable_asymmetric_fence();

// One wait, from the first pass without progress to the next progress.
class Waiter {
 public:
  // Called now and then while waiting, with the time waited so far; may throw to end the wait.
  class Watch {
   public:
    virtual ~Watch() = default;
    virtual bool tripped() const = 0;  // cheap: an error or abort is pending
    virtual void check(std::chrono::nanoseconds waited) = 0;
  };

  // What doesn't ring by itself: a network.
  class Alarm {
   public:
    virtual ~Alarm() = default;
    // From now on whatever happens there rings the doorbell, once. False: something has happened already.
    virtual bool arm() = 0;
  };

  // `doorbells`: of the ranks this thread drives; it sleeps on the first and only when there is one. `alarm`: null without
  // networks.
  Waiter(WaitPolicy& policy, std::span<Doorbell* const> doorbells, Watch* watch, Alarm* alarm = nullptr)
      : policy_(policy), doorbells_(doorbells), watch_(watch), alarm_(alarm) {}
  ~Waiter() { reset(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // After a pass without progress.
  void pause() {
    ++passes_;
    // Errors are looked for in every sixteenth pass, 0.2 us: a wait should cost little but the look at what it waits for.
    if (passes_ > policy_.polls || ((passes_ & 15) == 0 && ((passes_ & 255) == 0 || watch_->tripped()))) slow();
  }
  // After a pass with progress.
  void reset() {
    if (timed_) [[unlikely]] end();
    passes_ = 0;
  }

 private:
  void slow();
  void end();

  WaitPolicy& policy_;
  std::span<Doorbell* const> doorbells_;
  Watch* watch_;
  Alarm* alarm_;
  uint32_t passes_ = 0, yields_ = 0;
  bool others_ran_ = false;  // during a yield
  bool armed_ = false;
  bool timed_ = false;
  std::chrono::steady_clock::time_point since_;
  std::chrono::steady_clock::time_point checked_;
};

}  // namespace muster
