// The inside of a HostStream: a queue and the thread that empties it.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "muster/muster.h"

namespace muster {

struct HostStream::Impl {
  Impl();
  ~Impl();
  void enqueue(std::function<void()> job);
  void synchronize();
  bool idle();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable work_, progress_;
  std::deque<std::function<void()>> jobs_;
  uint64_t queued_ = 0, finished_ = 0;
  bool ending_ = false;
  std::exception_ptr error_;  // the first since the last synchronize
  std::thread thread_;
};

}  // namespace muster
