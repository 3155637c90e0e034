// Running *_perf programs as a user does, and reading their tables.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace muster::test {

struct Finished {
  int status = -1;
  std::string output;  // both streams
};

// Runs a shell command in which programs are found by name and $muster is the muster command.
inline Finished shell(const std::string& command) {
  FILE* run =
      popen(("exec 2>&1; PATH='" PERF_FOLDER "':$PATH; muster='" MUSTER_TOOL "'; " + command).c_str(), "r");
  Finished finished;
  for (std::array<char, 65536> buffer; const size_t n = fread(buffer.data(), 1, buffer.size(), run);)
    finished.output.append(buffer.data(), n);
  const int status = pclose(run);
  finished.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
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
