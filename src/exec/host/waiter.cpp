#include "exec/host/waiter.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;

// With a core for each rank a late peer is usually microseconds away. After some 50 us (a pass takes 10 to 20 ns) a look
// every 0.3 us, which is what a yield costs when nobody else wants the core, comes to the same; and if somebody does,
// it may be the very peer that is waited for.
constexpr uint32_t kPollsAlone = 3'000;
constexpr uint32_t kYieldsAlone = 20'000;
// Ranks sharing a core: the peer runs only when we leave, so leave almost at once; sleep when yielding has
// gone round many times without result.
constexpr uint32_t kPollsShared = 20;
constexpr uint32_t kYieldsShared = 5'000;

// With a network most of whom this rank waits for is elsewhere, and each look takes 0.4 us. Linux 6.18 takes the rest of its time
// slice from who yields, so whatever else runs on the core then runs for milliseconds: rather sleep, and be woken. All-reduce
// of 256 KiB between two hosts with another process on one of their two cores: 1400 us yielding on, 210 sleeping after 20
// yields (2.1 ms and 0.25 in MPICH). At least some 40 us of looks, which short messages take: 11 us, 24 when one sleeps.
constexpr uint32_t kYieldsNetwork = 20;
constexpr uint32_t kLeastPollsNetwork = 100;

// A yield that lasts longer than it takes to find nobody else (0.3 us) had somebody run.
constexpr auto kOthersRan = std::chrono::microseconds(2);

constexpr auto kCheckEvery = std::chrono::milliseconds(20);
constexpr auto kSleep = std::chrono::milliseconds(20);        // with the asymmetric fence no wake-up is missed
constexpr auto kShortSleep = std::chrono::microseconds(200);  // without it one may be

std::atomic<bool> g_fence{false};

}  // namespace

bool enable_asymmetric_fence() {
  static const bool ok = [] {
    const bool r = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
    g_fence.store(r);
    return r;
  }();
  return ok;
}

WaitPolicy WaitPolicy::choose(std::string_view mode, int ranks, double cores) {
  if (mode == "spin") return {UINT32_MAX, UINT32_MAX, 0, false};
  if (mode == "yield") return {kPollsShared, kPollsShared, UINT32_MAX, false};
  if (mode == "sleep") return {kPollsShared, kPollsShared, 20, true};
  if (mode != "auto") fail(Result::invalid_usage, "MUSTER_WAIT='{}' can't be read: auto, spin, yield or sleep is wanted", mode);
  if (ranks <= cores) return {kPollsAlone, kPollsAlone, kYieldsAlone, true};
  return {kPollsShared, kPollsShared, kYieldsShared, true};
}

void Waiter::slow() {
  const auto now = Clock::now();
  if (!timed_) {
    timed_ = true;
    since_ = checked_ = now;
  }
  if (watch_->tripped() || now - checked_ >= kCheckEvery) {
    checked_ = now;
    watch_->check(now - since_);
  }
  if (passes_ <= policy_.polls) return;
  if (passes_ == UINT32_MAX) --passes_;  // stay here without overflow
  if (!policy_.sleeps || yields_ < (alarm_ ? std::min(kYieldsNetwork, policy_.yields) : policy_.yields)) {
    ++yields_;
    sched_yield();
    if (Clock::now() - now > kOthersRan) others_ran_ = true;
    return;
  }
  if (doorbells_.size() != 1) {
    // Several ranks in one thread: there is no one word to sleep on.
    const timespec nap{0, 100'000};
    nanosleep(&nap, nullptr);
    return;
  }
  auto& word = doorbells_[0]->sleeping;
  if (!armed_) {
    // Announce, make every peer see it, and look once more before sleeping.
    word.store(1, std::memory_order_seq_cst);
    if (g_fence.load(std::memory_order_relaxed)) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    armed_ = true;
    return;
  }
  if (alarm_ && !alarm_->arm()) {
    word.store(0, std::memory_order_relaxed);
    armed_ = false;
    return;
  }
  const auto limit = std::chrono::nanoseconds(g_fence.load(std::memory_order_relaxed) ? std::chrono::nanoseconds(kSleep) : kShortSleep);
  const timespec t{0, limit.count()};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, 1, &t, nullptr, 0);
  word.store(0, std::memory_order_relaxed);
  armed_ = false;
}

void Waiter::end() {
  if (armed_) doorbells_[0]->sleeping.store(0, std::memory_order_relaxed);
  if (yields_ > 0)
    policy_.polls = others_ran_ ? std::max(policy_.polls / 2, std::min(alarm_ ? kLeastPollsNetwork : kPollsShared, policy_.most_polls))
                                : std::min(policy_.polls * 2, policy_.most_polls);
  yields_ = 0;
  armed_ = timed_ = others_ran_ = false;
}

}  // namespace muster
