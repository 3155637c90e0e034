#include "fork_ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

namespace peers {
namespace {

[[noreturn]] void be_child(int rank, pid_t parent, const std::function<int(int)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before prctl
  int status = 1;
  try {
    status = body(rank);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
  }
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace

int fork_ranks(int ranks, const std::function<int(int)>& body) {
  std::fflush(nullptr);
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  bool failed = false;
  for (int r = 0; r < ranks && !failed; ++r) {
    const pid_t pid = fork();
    if (pid == 0) be_child(r, parent, body);
    if (pid < 0) {
      std::fprintf(stderr, "cannot start rank %d of %d: fork: %s\n", r, ranks, std::strerror(errno));
      failed = true;
    } else {
      children.push_back(pid);
    }
  }
  const auto end_others = [&] {
    for (pid_t pid : children) kill(pid, SIGKILL);
  };
  if (failed) end_others();
  while (!children.empty()) {
    int status = 0;
    const pid_t pid = wait(&status);
    if (pid < 0) break;
    std::erase(children, pid);
    if (status != 0 && !failed) {
      failed = true;
      end_others();
    }
  }
  return failed ? 1 : 0;
}

}  // namespace peers
