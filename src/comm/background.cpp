#include "comm/background.h"

#include <chrono>
#include <utility>

#include "base/thread.h"

namespace muster {
namespace {
// Calls come in rows; starting a thread for each would cost more than the call.
constexpr std::chrono::milliseconds kLinger{100};
}  // namespace

void Background::post(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  if (!running_) start_thread("muster-comm", [self = shared_from_this()] { self->run(); }).detach();
  running_ = true;
  jobs_.push_back(std::move(job));
  more_.notify_one();
}

void Background::run() {
  std::unique_lock lock(mutex_);
  while (more_.wait_for(lock, kLinger, [&] { return !jobs_.empty(); })) {
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;  // what it holds goes now
    lock.lock();
  }
  running_ = false;
}

}  // namespace muster
