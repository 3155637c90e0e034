// What is looked at while one communicator's calls wait: errors, late and dead ranks, calls that differ, the time.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "comm/collective_run.h"

namespace muster {

class PartWatch {
 public:
  // Either may be null, or empty: not under way.
  PartWatch(Communicator::Impl& comm, const std::optional<CollectiveRun>* collective, const std::optional<Run>* messages)
      : comm_(comm), collective_(collective), messages_(messages) {}

  // Throws if the wait must end.
  void check(std::chrono::nanoseconds waited);

 private:
  bool in_collective() const { return collective_ && *collective_ && !(*collective_)->done(); }
  bool in_messages() const { return messages_ && *messages_ && !(*messages_)->done(); }
  int waiting_for() const { return in_collective() ? (*collective_)->waiting_for() : (*messages_)->waiting_for(); }
  void require_present(int late) const;
  std::string what() const;
  std::string who_is_late(int late) const;
  void compare_ledgers();

  Communicator::Impl& comm_;
  const std::optional<CollectiveRun>* collective_;
  const std::optional<Run>* messages_;
  std::chrono::nanoseconds next_warning_{0};
};

}  // namespace muster
