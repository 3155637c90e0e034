// Runs the jobs of one communicator, one after the other, on a thread that is there while there are jobs:
// idle communicators have none.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace muster {

class Background : public std::enable_shared_from_this<Background> {
 public:
  // Any thread. Jobs don't throw. Throws system_error, and keeps nothing, where no thread can be started.
  void post(std::function<void()> job);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::function<void()>> jobs_;
  bool running_ = false;
};

}  // namespace muster
