// One-sided calls: a rank writes to another's window and counts a signal there; the other waits for signals.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/window.h"

namespace muster {

// One call as the user made it.
struct OneSided {
  enum class Kind { put_signal, signal, wait_signal };
  Kind kind = Kind::signal;
  int peer = -1;
  Signal signal;
  const std::byte* source = nullptr;
  size_t bytes = 0, offset = 0;
  std::shared_ptr<const Window::Impl> window;
  std::vector<SignalWait> waits;
};

// Throws invalid_argument naming the argument.
void validate(const Communicator::Impl& comm, const OneSided& call);

// One communicator's one-sided calls of a batch, one after the other: first what sends signals, which waits for
// nobody, then the waits. So ranks don't keep each other waiting, in whatever order their groups list the calls.
class OneSidedRun {
 public:
  OneSidedRun(Communicator::Impl& comm, std::span<OneSided> calls);
  OneSidedRun(const OneSidedRun&) = delete;
  OneSidedRun& operator=(const OneSidedRun&) = delete;

  bool done() const { return next_ == calls_.size(); }
  // Takes what can be taken of the call under way, of a long copy a part. True: something was.
  bool advance();
  // While nothing can be: throws if the wait must end.
  void check(std::chrono::nanoseconds waited);

 private:
  const OneSided& call() const { return calls_[next_]; }
  void next();
  bool advance_signal();
  bool advance_wait();
  void copy_part();
  std::atomic<uint64_t>& counter_of(int from, int to, Signal s);
  bool is_far(int rank) const;
  uint64_t come(const SignalWait& w);  // of its signal, and not taken yet
  bool has_come(const SignalWait& w) { return come(w) >= static_cast<uint64_t>(w.count); }
  std::string what();

  Communicator::Impl& comm_;
  const std::span<const OneSided> calls_;
  size_t next_ = 0;
  uint64_t copied_ = 0;  // bytes of the put under way, as FarPuts::send counts for other hosts
  size_t waited_ = 0;  // entries of the wait under way that are complete
  std::chrono::nanoseconds next_warning_{0};
  int absent_ = -1;
};

}  // namespace muster
