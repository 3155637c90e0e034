// What launchers say in the environment of the processes they start.
#pragma once

#include <functional>
#include <string>

#include "bootstrap/resolve.h"

namespace muster {

struct Launch {
  std::string launcher;  // for messages
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  HostPort meeting;      // empty host: all ranks are on this host and meet at a UNIX socket
  std::string identity;  // the same text in all ranks of the job, and in no other job at that meeting point
};

using Environment = std::function<const char*(const char* name)>;  // null: not set

// In this order: torchrun's variables (also set by muster run and by hand), Open MPI's, MPICH's (PMI),
// Slurm's. Throws invalid_usage for numbers that don't parse, ranks that don't fit, a variable that is
// missing from a set, several hosts without a meeting point, and when there is no launcher's set at all.
Launch read_launch(const Environment& environment);

}  // namespace muster
