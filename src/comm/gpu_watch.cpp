#include "comm/gpu_watch.h"

#include <utility>

#include "base/error.h"
#include "bootstrap/service.h"
#include "comm/part_watch.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kGpuLookEvery{20};  // as ranks that wait do (exec/host/waiter.cpp)

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
    check_time(comm, kWhat, ", waiting for " + comm.rank_name(wait->rank), now - w.since, &w.next_warning);
  } catch (const Error&) {  // it is the communicator's now
    comm.check_gpu();
  }
}

}  // namespace muster
