// What the system says of other processes. Any thread.
#pragma once

#include <string>

namespace muster {

struct ProcessStatus {
  int parent = 0;
  std::string name;
  char state = 0;     // a letter, see proc(5): T stopped by a signal, t by a debugger, Z ended, ...
  std::string start;  // in clock ticks since boot: tells a process from a later one of the same number
};
// Empty members: there is no such process, or it isn't shown to this one.
ProcessStatus read_process(int pid);

// Names the numbering of processes that this one lives in (its PID namespace); empty where that can't be told.
std::string pid_namespace();

// Whether the process that had `pid` and `start` (see ProcessStatus) in this numbering has ended, waited for by its
// parent or not. False where that can't be told.
bool has_ended(int pid, const std::string& start);

}  // namespace muster
