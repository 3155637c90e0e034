// Rank 0's standard input. A file or pipe is handed over as it is. A terminal can't be: the ranks are in
// process groups of their own, and the kernel stops background groups that read it; so what is typed is
// passed on by a pipe.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "base/fd.h"

namespace muster::tool {

class TerminalInput {
 public:
  // What rank 0 is to read from; rank_has_it() after it was started.
  int descriptor_for_rank();
  void rank_has_it() { rank_end_.reset(); }

  void add_to(std::vector<pollfd>& fds) const;
  void handle(const std::vector<pollfd>& fds);

 private:
  Fd rank_end_;
  Fd our_end_;           // none where nothing is to be passed on
  std::string pending_;  // typed, but not taken by the rank yet
};

}  // namespace muster::tool
