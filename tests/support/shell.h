// Running programs as a user does, by the shell.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace muster::test {

struct Output {
  int status = -1;   // 128 and the signal's number for a death
  std::string text;  // stdout, and stderr where the command says so
};

inline Output output_of(const std::string& command) {
  Output o;
  FILE* run = popen(command.c_str(), "r");
  if (!run) return o;
  for (std::array<char, 65536> buffer; const size_t n = fread(buffer.data(), 1, buffer.size(), run);)
    o.text.append(buffer.data(), n);
  const int status = pclose(run);
  o.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return o;
}

}  // namespace muster::test
