// Starting the ranks of a job on this machine and looking after them until all have ended.
#pragma once

#include <string>
#include <vector>

namespace muster::tool {

struct RunOptions {
  int ranks = 1;
  bool prefix = false;
  bool bind = true;  // each rank to its share of the cores, or to one, if all can have as many ranks
  double grace_seconds = 5;
  std::vector<std::string> command;  // program and arguments
};

// Runs the job; messages go to stderr. Returns the exit status: 0, the first failing rank's, 127 if the
// program isn't found, 126 if it can't be started, 1 if the machine has no process or descriptor left. One
// call at a time: signals of the whole process are taken over while it runs.
int run_job(const RunOptions& options);

}  // namespace muster::tool
