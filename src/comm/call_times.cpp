#include "comm/call_times.h"

#include <chrono>
#include <utility>

#include "bootstrap/service.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kLookEvery{1};

void note_times(RankControl& c, int64_t now) {
  constexpr auto relaxed = std::memory_order_relaxed;
  const auto look_at = [&](const std::atomic<uint64_t>& count, std::atomic<uint64_t>& seen,
                           std::atomic<int64_t>& seen_at) {
    const uint64_t n = count.load(relaxed);
    if (n == seen.load(relaxed)) return;
    seen.store(n, relaxed);
    seen_at.store(now, relaxed);
  };
  look_at(c.entered, c.times.entered, c.times.entered_at);
  look_at(c.finished, c.times.finished, c.times.finished_at);
  c.times.seen_at.store(now, relaxed);
}

}  // namespace

CallTimes& CallTimes::of_process() {
  static CallTimes* const times = new CallTimes;  // never deleted: the helper thread has no end
  return *times;
}

void CallTimes::add(const std::shared_ptr<Segment>& segment, int place) {
  const std::lock_guard lock(mutex_);
  places_.push_back({segment, place});
  if (!std::exchange(looking_, true)) Service::get().loop().post([this] { look(); });
}

void CallTimes::look() {
  std::vector<std::shared_ptr<Segment>> held;  // the last holder of one may go meanwhile: it ends without the lock
  const std::lock_guard lock(mutex_);
  const auto now = EventLoop::Clock::now();
  std::erase_if(places_, [&](const Place& p) {
    std::shared_ptr<Segment> segment = p.segment.lock();
    if (!segment) return true;
    note_times(segment->control(p.place), std::chrono::nanoseconds(now.time_since_epoch()).count());
    held.push_back(std::move(segment));
    return false;
  });
  looking_ = !places_.empty();
  if (looking_) Service::get().loop().at(now + kLookEvery, [this] { look(); });
}

}  // namespace muster
