// What launchers say in the environment of the processes they start.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bootstrap/resolve.h"

namespace muster {

struct Launch {
  std::string launcher;  // for messages
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  // Where rank 0 may be found, likeliest first; empty: all ranks are on this host and meet at a UNIX socket.
  std::vector<HostPort> meeting;
  bool meeting_set = false;  // by MASTER_ADDR and MASTER_PORT: rank 0 listens at that address alone
  std::string identity;  // the same text in all ranks of the job, and in no other job at that meeting point
};

using Environment = std::function<const char*(const char* name)>;  // null: not set

// In this order: torchrun's variables (also set by muster run and by hand), Open MPI's, MPICH's (PMI),
// Slurm's. Where ranks on several hosts weren't given a meeting point, it is what the launcher says of its hosts. Throws invalid_usage for numbers that don't parse, ranks that don't fit, a variable that is
// missing from a set, several hosts without a meeting point, and when there is no launcher's set at all.
Launch read_launch(const Environment& environment);
// Whether any variable of such a set is there.
bool is_launched(const Environment& environment);

}  // namespace muster
