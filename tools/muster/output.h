// The ranks' output, gathered from pipes and written line by line, each line behind its rank.
#pragma once

#include <poll.h>

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace muster::tool {

class PrefixedOutput {
 public:
  // What rank writes into the returned descriptor is printed on `target` (standard output or error).
  Fd open(int rank, int target);

  // Descriptors to wait for; give the same array back to handle() after poll.
  void add_to(std::vector<pollfd>& fds) const;
  void handle(const std::vector<pollfd>& fds);

  bool reading() const;                             // a rank (or a descendant of one) may still write
  bool writing() const { return !queue_.empty(); }  // read, but not written yet
  void finish();                                    // takes what has arrived, then closes the ranks' ends

 private:
  struct Source {
    Fd fd;
    int target;
    std::string prefix;
    std::string partial;  // of a line, not ended yet
  };
  struct Text {
    int target;
    std::string bytes;
    size_t written = 0;
  };
  void read_from(Source& source, size_t most);
  void take(Source& source, std::string_view bytes);
  void end(Source& source);
  void write_some();

  std::vector<Source> sources_;
  std::deque<Text>
      queue_;  // written strictly in order, so that no line is torn where both targets are one file
  size_t queued_bytes_ = 0;
};

}  // namespace muster::tool
