#include "comm/gpu_watch.h"

#include <utility>

#include "base/error.h"
#include "bootstrap/service.h"
#include "comm/mismatch.h"
#include "comm/part_watch.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kGpuLookEvery{20};  // as ranks that wait do (exec/host/waiter.cpp)

// Kernels and copies find by themselves that a message or a meeting is of another call. They can't where one
// rank is in a kernel and another in a meeting; so what both have published is compared after a while.
constexpr std::chrono::seconds kCallsDifferAfter{1};

void compare_published(Communicator::Impl& comm, int other) {
  const uint64_t last = comm.own_control->entered.load(std::memory_order_relaxed);
  for (uint64_t s = last > kLedgerEntries ? last - kLedgerEntries + 1 : 1; s <= last; ++s) {
    const auto mine = published_call(comm, comm.rank, s), theirs = published_call(comm, other, s);
    if (mine && theirs && mine->fingerprint != theirs->fingerprint)
      raise_call_mismatch(comm, mine->text(), other, theirs->text());
  }
}

}  // namespace

GpuWatch& GpuWatch::of_process() {
  static GpuWatch* const watch = new GpuWatch;  // never deleted: the helper thread has no end
  return *watch;
}

void GpuWatch::add(Communicator::Impl& comm) {
  const std::lock_guard lock(mutex_);
  watched_.push_back({.comm = &comm});
  if (!std::exchange(looking_, true)) Service::get().loop().post([this] { look(); });
}

void GpuWatch::remove(const Communicator::Impl& comm) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(watched_, [&](const Watched& w) { return w.comm == &comm; });
}

void GpuWatch::look() {
  const std::lock_guard lock(mutex_);
  for (Watched& w : watched_) {
    w.comm->check_gpu();
    look_at_wait(w);
  }
  looking_ = !watched_.empty();
  if (looking_) Service::get().loop().at(EventLoop::Clock::now() + kGpuLookEvery, [this] { look(); });
}

void GpuWatch::look_at_wait(Watched& w) {
  Communicator::Impl& comm = *w.comm;
  const auto now = std::chrono::steady_clock::now();
  const std::optional<GpuWait> wait = comm.failed() ? std::nullopt : comm.gpu.load()->wait();
  if (wait != w.wait) w = {.comm = w.comm, .wait = wait, .since = now};
  if (!wait) return;
  try {
    constexpr const char* kWhat = "a call on GPU memory";
    require_present(comm, wait->rank, kWhat, &w.absent);
    if (now - w.since > kCallsDifferAfter) compare_published(comm, wait->rank);
    check_time(comm, kWhat, ", waiting for " + comm.rank_name(wait->rank), now - w.since, &w.next_warning);
  } catch (const Error&) {  // it is the communicator's now
    comm.check_gpu();
  }
}

}  // namespace muster
