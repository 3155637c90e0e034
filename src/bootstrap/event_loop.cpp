#include "bootstrap/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "bootstrap/crypto.h"

namespace muster {
namespace {

// A bug in one connection's handler must not end the others' service.
void guarded(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception& e) {
    if (!process_is_ending()) log_error("bootstrap service: {}", e.what());
  }
}

}  // namespace

EventLoop::EventLoop() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !wake_)
    fail_errno(errno, "the bootstrap service can't start (epoll_create1, eventfd)",
               "Raise the limit of open files");
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.u64 = 0;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &e) != 0) fail_errno(errno, "epoll_ctl");

  std::mutex started;  // thread_ is set before the thread reads it
  std::unique_lock hold(started);
  std::thread t = start_thread("muster-svc", [this, &started] {
    { const std::lock_guard wait(started); }
    run();
  });
  thread_ = t.get_id();
  t.detach();
  hold.unlock();
  // The new thread may still hold `started`: a call returns only after it has let go.
  call([] {});
}

void EventLoop::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof one);
}

void EventLoop::call(const std::function<void()>& task) {
  if (on_thread()) return task();
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
  post([&] {
    try {
      task();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
  if (error) std::rethrow_exception(error);
}

EventLoop::Handle EventLoop::watch(int fd, uint32_t epoll_events, std::function<void()> ready) {
  const Handle h = ++last_handle_;
  epoll_event e{};
  e.events = epoll_events;
  e.data.u64 = h;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &e) != 0) fail_errno(errno, "epoll_ctl");
  watches_.emplace(h, Watch{fd, epoll_events, std::move(ready)});
  return h;
}

void EventLoop::change(Handle watch, uint32_t epoll_events) {
  const auto w = watches_.find(watch);
  if (w == watches_.end()) return;
  // What is watched for once has to be asked for again each time.
  const bool same = std::exchange(w->second.events, epoll_events) == epoll_events;
  if (same && !(epoll_events & EPOLLONESHOT)) return;
  epoll_event e{};
  e.events = epoll_events;
  e.data.u64 = watch;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, w->second.fd, &e);
}

void EventLoop::unwatch(Handle watch) {
  const auto w = watches_.find(watch);
  if (w == watches_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, w->second.fd, nullptr);
  watches_.erase(w);
}

EventLoop::Handle EventLoop::at(Clock::time_point when, std::function<void()> task) {
  const Handle h = ++last_handle_;
  timers_.emplace(std::pair{when, h}, std::move(task));
  timer_times_.emplace(h, when);
  return h;
}

void EventLoop::cancel(Handle timer) {
  const auto t = timer_times_.find(timer);
  if (t == timer_times_.end()) return;
  timers_.erase({t->second, timer});
  timer_times_.erase(t);
}

void EventLoop::run_posted() {
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  for (const auto& task : tasks) guarded(task);
}

void EventLoop::run_timers() {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto node = timers_.extract(timers_.begin());
    timer_times_.erase(node.key().second);
    guarded(node.mapped());
  }
}

int EventLoop::milliseconds_to_next_timer() const {
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first.first - Clock::now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<long long>(ms, 0, 1 << 30));
}

void EventLoop::run() {
  for (;;) {
    epoll_event events[64];
    const int n = epoll_wait(epoll_.get(), events, std::size(events), milliseconds_to_next_timer());
    for (int i = 0; i < n; ++i) {
      const Handle handle = events[i].data.u64;  // a copy: the struct is packed
      if (handle == 0) {
        uint64_t count = 0;
        [[maybe_unused]] const ssize_t r = read(wake_.get(), &count, sizeof count);
        continue;
      }
      // A handler earlier in this batch may have unwatched it; a handler may unwatch itself while it runs.
      const auto w = watches_.find(handle);
      if (w == watches_.end()) continue;
      const auto ready = w->second.ready;
      guarded(ready);
    }
    run_timers();
    run_posted();
  }
}

}  // namespace muster
