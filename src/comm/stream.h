// The inside of a HostStream: a queue and the thread that empties it.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "base/fork.h"
#include "muster/muster.h"

namespace muster {

struct HostStream::Impl {
  Impl();
  ~Impl();
  void enqueue(std::function<void()> job);
  uint64_t queued();                // jobs so far
  void wait_for(uint64_t jobs);     // until so many have ended; throws the first error since the last wait
  void synchronize() { wait_for(queued()); }
  bool idle();
  bool is_own_process() const { return fork_generation_ == muster::fork_generation(); }
  // Throws invalid_usage in a process forked from the one that made the stream: the thread stayed there.
  void require_own_process() const;

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable work_, progress_;
  std::deque<std::function<void()>> jobs_;
  uint64_t queued_ = 0, finished_ = 0;
  uint64_t awaited_ = UINT64_MAX;  // the least number of finished jobs that somebody waits for
  bool ending_ = false;
  std::exception_ptr error_;  // the first since the last synchronize
  const int fork_generation_ = muster::fork_generation();
  std::thread thread_;  // last: it uses the others
};

}  // namespace muster
