#include "base/process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <fstream>
#include <sstream>

#include "base/fd.h"

namespace muster {
namespace {

std::string target_of(const char* link) {
  char text[PATH_MAX];
  const ssize_t n = readlink(link, text, sizeof text);
  return n > 0 ? std::string(text, static_cast<size_t>(n)) : std::string();
}

}  // namespace

ProcessStatus read_process(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string all;
  std::getline(file, all, '\0');
  const auto open = all.find('('), close = all.rfind(')');  // a name may hold anything, parentheses included
  ProcessStatus p;
  if (open == all.npos || close == all.npos || close < open) return p;
  p.name = all.substr(open + 1, close - open - 1);
  std::istringstream rest(all.substr(close + 1));
  std::string field;
  rest >> p.state >> p.parent;
  for (int i = 5; i <= 22 && rest >> field; ++i) p.start = field;
  return p;
}

std::string pid_namespace() {
  // The /proc of another numbering would show other processes.
  return target_of("/proc/self") == std::to_string(getpid()) ? target_of("/proc/self/ns/pid") : "";
}

bool has_ended(int pid, const std::string& start) {
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));  // glibc 2.36 declares its own for C only
  if (!process) return errno == ESRCH;
  pollfd ended{process.get(), POLLIN, 0};
  if (poll(&ended, 1, 0) > 0) return true;
  const std::string now = read_process(pid).start;
  return !now.empty() && now != start;
}

}  // namespace muster
