#include "perf/monitor.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

namespace muster::perf {

using namespace std::chrono_literals;

Monitor::Monitor(std::function<void()> abort_all, double timeout_seconds, bool progress)
    : abort_all_(std::move(abort_all)),
      timeout_seconds_(timeout_seconds),
      progress_(progress),
      thread_([this] { watch(); }) {}

Monitor::~Monitor() {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    erase();
  }
  changed_.notify_all();
  thread_.join();
}

void Monitor::begin_row(const std::string& what) {
  std::lock_guard lock(mutex_);
  in_row_ = true;
  what_ = what;
  phase_ = "";
  since_ = Clock::now();
  changed_.notify_all();
}

void Monitor::set_phase(const char* phase) {
  std::lock_guard lock(mutex_);
  phase_ = phase;
}

void Monitor::end_row() {
  std::lock_guard lock(mutex_);
  in_row_ = false;
  erase();
}

void Monitor::fail(Exit exit, const std::string& message) {
  {
    std::lock_guard lock(mutex_);
    erase();
    if (failure_ != Exit::success) return;  // what follows from the first failure is no news
    failure_ = exit;
    failed_at_ = Clock::now();
    fmt::print(stderr, "{}\n", message);
    changed_.notify_all();
  }
  abort_all_();
}

Exit Monitor::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void Monitor::watch() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex_);
  while (!ended_) {
    if (!in_row_ && failure_ == Exit::success) {
      changed_.wait(lock);  // asleep where nothing is to be watched: the ranks may need the core
      continue;
    }
    changed_.wait_for(lock, 250ms);
    if (ended_) return;
    if (failure_ != Exit::success) {
      if (Clock::now() - failed_at_ > 10s) _exit(static_cast<int>(failure_));  // a call didn't heed the abort
      continue;
    }
    const auto passed = Clock::now() - since_;
    if (in_row_ && timeout_seconds_ > 0 && passed > std::chrono::duration<double>(timeout_seconds_)) {
      const std::string message = fmt::format("{}: not done after {:g} s (-T)", what_, timeout_seconds_);
      lock.unlock();
      fail(Exit::timeout, message);
      lock.lock();
    } else if (in_row_ && progress_ && passed > 2s) {
      show(passed);
    }
  }
}

void Monitor::show(Clock::duration passed) {
  const std::string line = fmt::format("\r# {}{}{}: {:.0f} s\033[K", what_, *phase_ ? ", " : "", phase_,
                                       std::chrono::duration<double>(passed).count());
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, line.data(), line.size());
  shown_ = true;
}

void Monitor::erase() {
  if (!shown_) return;
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, "\r\033[K", 4);
  shown_ = false;
}

}  // namespace muster::perf
