// Running *_perf programs as a user does, and reading their tables.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "support/shell.h"

namespace muster::test {

// Runs a shell command in which programs are found by name and $muster is the muster command; both streams.
inline Output shell(const std::string& command) {
  return output_of("exec 2>&1; PATH='" PERF_FOLDER "':$PATH; muster='" MUSTER_TOOL "'; " + command);
}

// The rows of a table, word by word.
inline std::vector<std::vector<std::string>> rows_of(const std::string& output) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#") || line.find_first_not_of(' ') == line.npos) continue;
    std::istringstream words(line);
    rows.emplace_back();
    for (std::string word; words >> word;) rows.back().push_back(word);
  }
  return rows;
}

}  // namespace muster::test
