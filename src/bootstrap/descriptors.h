// Descriptors handed round among the processes of a host: each member's go to the first member of the group,
// which passes them on to the others, one member's at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/service.h"

namespace muster {

struct DescriptorExchange {
  Bootstrap& ranks;  // carries the names of the sockets, and whether all could be reached
  PublicId id;       // of the communicator
  Key key;
  const std::vector<int>& group;
  const std::vector<int>& mine;
  const std::function<void(int rank, std::vector<Fd> fds)>& receive;
  Deadline deadline;

  void run();  // see Bootstrap::exchange_fds
};

}  // namespace muster
