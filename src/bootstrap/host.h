// Who and where this process is, for messages and for telling whether two processes can meet over loopback.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

struct Host {
  std::string name;  // gethostname
  int pid = 0;
  uint64_t place = 0;  // equal for processes that share loopback: same kernel boot, same network namespace
};
Host this_host();

}  // namespace muster
