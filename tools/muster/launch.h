// Starting one rank: a process in a group of its own that dies with this one.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"

namespace muster::tool {

struct LaunchRequest {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=value, replacing those of this process
  int input = -1;                        // becomes standard input; -1 = /dev/null
  int output = -1;                       // become standard output and error; -1 = those of this process
  int error = -1;
  sigset_t signal_mask{};  // of the new process
  std::vector<int> cpus;   // it may run on; empty = as this process
};

struct Launched {
  pid_t pid = -1;
  int error = 0;  // errno of exec; 0 = the program runs
};

// Throws system_error if no process can be made.
Launched launch(const LaunchRequest& request);

// A TCP port on 127.0.0.1 that was free a moment ago.
int find_free_port();
// 256 random bits as hexadecimal digits.
std::string random_key();

}  // namespace muster::tool
