#include "launch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace muster::tool {
namespace {

std::vector<std::string> merged_environment(const std::vector<std::string>& own) {
  std::vector<std::string> merged = own;
  for (char** e = environ; *e; ++e) {
    const std::string_view entry = *e;
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    if (std::none_of(own.begin(), own.end(), [&](const std::string& o) { return o.starts_with(name); }))
      merged.emplace_back(entry);
  }
  return merged;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

void become(int fd, int target) {
  if (fd >= 0 && dup2(fd, target) < 0) _exit(126);
}

// Where the kernel refuses, the process runs as it is.
void bind(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus)
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  if (CPU_COUNT(&set) > 0) sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

Launched launch(const LaunchRequest& request) {
  std::vector<std::string> command = request.command;
  std::vector<std::string> environment = merged_environment(request.environment);
  const std::vector<char*> argv = pointers_to(command);
  std::vector<char*> envp = pointers_to(environment);

  int ends[2];  // closed by a successful exec; carries errno of a failed one
  if (pipe2(ends, O_CLOEXEC) != 0)
    fail_errno(errno, "can't make a pipe", "Raise the limit of open files (ulimit -n)");
  const Fd reader(ends[0]);
  Fd writer(ends[1]);

  const pid_t parent = getpid();
  Launched result;
  result.pid = fork();
  if (result.pid < 0)
    fail_errno(errno, "can't start another process",
               "Raise the limit of processes (ulimit -u, or pids.max of the cgroup)");
  if (result.pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(126);  // it died before the line above
    bind(request.cpus);
    become(request.input >= 0 ? request.input : open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    become(request.output, STDOUT_FILENO);
    become(request.error, STDERR_FILENO);
    sigprocmask(SIG_SETMASK, &request.signal_mask, nullptr);
    environ = envp.data();
    execvp(argv[0], argv.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t n = write(writer.get(), &error, sizeof error);
    _exit(127);
  }
  setpgid(result.pid, result.pid);  // here too: it may be signalled before it has run at all
  writer.reset();
  while (read(reader.get(), &result.error, sizeof result.error) < 0 && errno == EINTR) {
  }
  if (result.error)
    while (waitpid(result.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  return result;
}

int find_free_port() {
  const Fd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (!socket_fd || bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      getsockname(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return 29400 +
           getpid() % 1000;  // no loopback interface that works: there it only names the meeting point
  return ntohs(address.sin_port);
}

std::string random_key() {
  unsigned char bytes[32];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    fail_errno(errno, "no random numbers from the kernel");
  std::string key;
  for (const unsigned char byte : bytes) key += fmt::format("{:02x}", byte);
  return key;
}

}  // namespace muster::tool
