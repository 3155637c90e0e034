// What is looked at while one communicator's calls wait: errors, late and dead ranks, calls that differ, the time.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "comm/collective_run.h"
#include "comm/whereabouts.h"

namespace muster {

// Whoever waits for one rank looks at these. `what`: the call that waits. Both raise the communicator's error.
// A rank that has left, or whose process has ended, sends nothing more; what it had sent before is here when that is seen, so
// that one more pass finds it. *absent: who was seen to be gone in the last look, -1 at first.
void require_present(Communicator::Impl& comm, int late, const std::string& what, int* absent);
// Ends the wait when its time is over, and warns of a long one. `who`: ", waiting for ..." or nothing; *next_warning: 0 at first.
void check_time(Communicator::Impl& comm, const std::string& what, const std::string& who, std::chrono::nanoseconds waited,
                std::chrono::nanoseconds* next_warning);
// The warning alone.
void warn_when_late(const Communicator::Impl& comm, const std::string& what, const std::string& who, std::chrono::nanoseconds waited,
                    std::chrono::nanoseconds* next_warning);

class PartWatch {
 public:
  // Either may be null, or empty: not under way.
  PartWatch(Communicator::Impl& comm, const std::optional<CollectiveRun>* collective, const std::optional<Run>* messages)
      : comm_(comm), collective_(collective), messages_(messages) {}
  ~PartWatch() { forget_wait(comm_); }
  PartWatch(const PartWatch&) = delete;
  PartWatch& operator=(const PartWatch&) = delete;

  // Throws if the wait must end.
  void check(std::chrono::nanoseconds waited);

 private:
  bool in_collective() const { return collective_ && *collective_ && !(*collective_)->done(); }
  bool in_messages() const { return messages_ && *messages_ && !(*messages_)->done(); }
  int waiting_for() const { return in_collective() ? (*collective_)->waiting_for() : (*messages_)->waiting_for(); }
  std::string what() const;
  bool answers(int rank, std::chrono::nanoseconds waited) const;
  std::string who_is_late(int late, std::chrono::nanoseconds waited) const;
  void compare_ledgers();
  bool may_still_come();

  Communicator::Impl& comm_;
  const std::optional<CollectiveRun>* collective_;
  const std::optional<Run>* messages_;
  std::chrono::nanoseconds next_warning_{0};
  int absent_ = -1;
  std::optional<std::chrono::steady_clock::time_point> failed_at_;  // that is, was seen to have
};

}  // namespace muster
