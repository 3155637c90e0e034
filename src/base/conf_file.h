// Files of options: NAME=value lines, as /etc/nccl.conf is written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct ConfFile {
  struct Line {
    int number;  // from 1
    std::string name, value;
  };
  struct Problem {
    int number;  // of the line; 0: the file as a whole
    std::string text;
  };
  bool found = false;
  std::vector<Line> lines;
  std::vector<Problem> problems;
};

// Lines are NAME=value. Empty lines and lines that begin with # say nothing; blanks around name and value don't count;
// everything behind the first '=' is the value, quotes included. Of two lines of one name the first counts. Any bytes
// may be given; what can't be used is a problem with its line.
ConfFile parse_conf(std::string_view text);

// Not found: no such file. A file that can't be read, or is longer than 1 MiB, is a problem. Never blocks, never throws.
ConfFile read_conf_file(const std::string& path);

}  // namespace muster
