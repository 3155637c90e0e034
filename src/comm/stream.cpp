#include "comm/stream.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/thread.h"

namespace muster {

HostStream::Impl::Impl() : thread_(start_thread("muster-stream", [this] { run(); })) {}

HostStream::Impl::~Impl() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_one();
  thread_.join();
}

void HostStream::Impl::enqueue(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    ++queued_;
  }
  work_.notify_one();
}

void HostStream::Impl::require_own_process() const {
  if (!is_own_process())
    fail(Result::invalid_usage, "a HostStream was used in a process forked from the one that made it; its thread stayed there. Make streams after fork");
}

uint64_t HostStream::Impl::queued() {
  require_own_process();
  std::lock_guard lock(mutex_);
  return queued_;
}

void HostStream::Impl::wait_for(uint64_t jobs) {
  require_own_process();
  std::unique_lock lock(mutex_);
  while (finished_ < jobs) {
    awaited_ = std::min(awaited_, jobs);  // nobody is woken for less
    progress_.wait(lock);
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool HostStream::Impl::idle() {
  require_own_process();
  std::lock_guard lock(mutex_);
  return finished_ == queued_;
}

void HostStream::Impl::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      job();
    } catch (...) {
      error = std::current_exception();
    }
    job = nullptr;  // what it holds goes before anybody learns that it is finished
    lock.lock();
    if (error && !error_) error_ = error;
    if (++finished_ >= awaited_) {
      awaited_ = UINT64_MAX;
      progress_.notify_all();
    }
  }
}

HostStream::HostStream() : impl_(std::make_unique<Impl>()) {}
HostStream::~HostStream() {
  // What a forked child inherited can't be taken apart: its lock may be held, and its thread isn't there to join.
  if (impl_ && !impl_->is_own_process()) (void)impl_.release();
}
void HostStream::synchronize() { impl_->synchronize(); }
bool HostStream::idle() const { return impl_->idle(); }

}  // namespace muster
