// One thread that sleeps until a descriptor is ready, a time has come, or another thread wants something
// done. What runs on it never blocks. All members but post, call and on_thread are for that thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "bootstrap/process_fd.h"

namespace muster {

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Handle = uint64_t;  // of a watched descriptor or a timer; never reused; 0: none

  EventLoop();  // starts the thread, "muster-svc", with all signals blocked; it runs as long as the process
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  void post(std::function<void()> task);         // any thread; returns at once; tasks run in the order posted
  void call(const std::function<void()>& task);  // any thread; returns, or throws, when the task has
  bool on_thread() const { return std::this_thread::get_id() == thread_; }

  Handle watch(int fd, uint32_t epoll_events, std::function<void()> ready);
  void change(Handle watch, uint32_t epoll_events);
  void unwatch(Handle watch);  // before the descriptor is closed; 0 is allowed
  Handle at(Clock::time_point when, std::function<void()> task);
  void cancel(Handle timer);  // 0 and timers that have run are allowed

 private:
  struct Watch {
    int fd;
    uint32_t events;
    std::function<void()> ready;
  };
  void run();
  void run_posted();
  void run_timers();
  int milliseconds_to_next_timer() const;

  ProcessFd epoll_, wake_;
  std::thread::id thread_;
  Handle last_handle_ = 0;
  std::map<Handle, Watch> watches_;
  std::map<std::pair<Clock::time_point, Handle>, std::function<void()>> timers_;
  std::map<Handle, Clock::time_point> timer_times_;

  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
};

}  // namespace muster
