// Files of shared memory, found through the processes that hold them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/process.h"

namespace muster {

struct Holder {
  int pid = 0;        // as this process numbers it
  int inner_pid = 0;  // as it numbers itself
  ProcessStatus status;
};

struct HeldFile {
  Fd fd;  // for reading
  std::vector<Holder> holders;
};

// The memfds of this name that processes of this user hold, or those of `pids` if there are any; each once.
// `problems`: processes of `pids` that couldn't be looked into.
std::vector<HeldFile> find_memory_files(const char* name, std::span<const int> pids,
                                        std::vector<std::string>& problems);

}  // namespace muster
