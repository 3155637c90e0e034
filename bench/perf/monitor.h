// Watches over the threads of one process: shows progress, ends what takes too long, and lets one thread's
// failure end all.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "perf/args.h"

namespace muster::perf {

class Monitor {
 public:
  // abort_all: makes every call of the library in this process return soon. timeout 0 = no limit. progress:
  // show a line on stderr for rows that take over 2 s.
  Monitor(std::function<void()> abort_all, double timeout_seconds, bool progress);
  ~Monitor();

  // From any thread. A row: the limit counts from begin. what: for the progress line.
  void begin_row(const std::string& what);
  void set_phase(const char* phase);
  void end_row();

  // Records the first failure, prints it, and aborts.
  void fail(Exit exit, const std::string& message);
  Exit failure() const;

 private:
  void watch();
  void show(std::chrono::steady_clock::duration passed);
  void erase();

  using Clock = std::chrono::steady_clock;
  const std::function<void()> abort_all_;
  const double timeout_seconds_;
  const bool progress_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool in_row_ = false, shown_ = false, ended_ = false;
  Clock::time_point since_, failed_at_;
  std::string what_;
  const char* phase_ = "";
  Exit failure_ = Exit::success;
  std::thread thread_;
};

}  // namespace muster::perf
