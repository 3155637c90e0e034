#include "support/processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include "muster/types.h"

namespace muster::test {
namespace {

// How a rank process knows what it is: "RANK CALL FD", the call of run_processes within the test, the
// report's pipe.
constexpr const char* kRankVariable = "MUSTER_TEST_RANK";

struct RankProcess {
  int rank = -1;
  int call = 0;
  int report = -1;
};

RankProcess this_process() {
  RankProcess p;
  const char* text = std::getenv(kRankVariable);
  if (text && std::sscanf(text, "%d %d %d", &p.rank, &p.call, &p.report) != 3) p.rank = -1;
  return p;
}

// Calls of run_processes so far in the current test.
int next_call() {
  static const testing::TestInfo* test = nullptr;
  static int calls = 0;
  const testing::TestInfo* now = testing::UnitTest::GetInstance()->current_test_info();
  if (now != test) calls = 0;
  test = now;
  return calls++;
}

void send_report(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return;  // the parent is gone
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
}

// In a rank process: failures travel to the parent, which prints them as its own.
class Reporter : public testing::EmptyTestEventListener {
 public:
  explicit Reporter(int fd) : fd_(fd) {}
  bool failed() const { return failed_; }

 private:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    failed_ = true;
    send_report(fd_, fmt::format("{}:{}: {}\n", result.file_name() ? result.file_name() : "?",
                                 result.line_number(), result.message()));
  }
  int fd_;
  bool failed_ = false;
};

[[noreturn]] void run_rank(const RankProcess& self, const std::function<void(int)>& fn) {
  auto* reporter = new Reporter(self.report);  // from here on: what came before is the parent's to report
  testing::UnitTest::GetInstance()->listeners().Append(reporter);
  try {
    fn(self.rank);
  } catch (...) {
    send_report(self.report, text_of_current_exception() + "\n");
    _exit(1);
  }
  std::fflush(nullptr);
  _exit(reporter->failed() ? 1 : 0);
}

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    address.sin_port = htons(29400);  // a machine without a working loopback: the number is only a name there
  if (fd >= 0) close(fd);
  return ntohs(address.sin_port);
}

struct Child {
  pid_t pid = -1;
  int report = -1;
  std::string text = {};
  int status = 0;
};

Child start(int rank, int call, const RankStart& how) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("run_processes: no pipe");
  std::vector<std::string> environment = how.environment;
  environment.push_back(fmt::format("{}={} {} {}", kRankVariable, rank, call, ends[1]));
  for (char** e = environ; *e; ++e) {
    const std::string_view entry = *e;
    const std::string name(entry.substr(0, entry.find('=') + 1));
    if (std::none_of(environment.begin(), environment.end(),
                     [&](const std::string& own) { return own.starts_with(name); }))
      environment.emplace_back(entry);
  }
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  std::vector<std::string> arguments = {
      "/proc/self/exe", fmt::format("--gtest_filter={}.{}", info->test_suite_name(), info->name()),
      "--gtest_also_run_disabled_tests", "--gtest_output="};
  std::vector<char*> argv, envp;
  for (std::string& a : arguments) argv.push_back(a.data());
  for (std::string& e : environment) envp.push_back(e.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("run_processes: no process");
  if (pid == 0) {  // only async-signal-safe calls until exec: the parent may have threads
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    close(ends[0]);
    if (how.enter && !how.enter()) _exit(126);
    execve("/proc/self/exe", argv.data(), envp.data());
    _exit(127);
  }
  close(ends[1]);
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  return {pid, ends[0]};
}

// Reads what the ranks report until all have ended.
void collect(std::vector<Child>& children) {
  size_t open = children.size();
  while (open > 0) {
    std::vector<pollfd> fds;
    for (const Child& c : children) fds.push_back({c.report, POLLIN, 0});
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    for (size_t i = 0; i < children.size(); ++i) {
      if (children[i].report < 0 || !fds[i].revents) continue;
      char buffer[4096];
      const ssize_t n = read(children[i].report, buffer, sizeof buffer);
      if (n > 0) {
        children[i].text.append(buffer, static_cast<size_t>(n));
      } else if (n == 0 || errno != EINTR) {
        close(std::exchange(children[i].report, -1));
        --open;
      }
    }
  }
  for (Child& c : children)
    while (waitpid(c.pid, &c.status, 0) < 0 && errno == EINTR) {
    }
}

std::string random_job_key() {
  unsigned char key[32];
  if (getrandom(key, sizeof key, 0) != sizeof key)
    throw std::runtime_error("run_processes: no random numbers");
  std::string text;
  for (const unsigned char byte : key) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

void run_processes(int n, const std::function<void(int rank)>& fn, const ProcessExpectations& expected) {
  const int port = is_rank_process() ? 0 : free_port();
  std::vector<RankStart> ranks;
  for (int rank = 0; rank < n; ++rank)
    ranks.push_back({{fmt::format("RANK={}", rank), fmt::format("LOCAL_RANK={}", rank), fmt::format("WORLD_SIZE={}", n),
                      fmt::format("LOCAL_WORLD_SIZE={}", n), "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port)}});
  run_processes(ranks, fn, expected);
}

void run_processes(const std::vector<RankStart>& ranks, const std::function<void(int rank)>& fn,
                   const ProcessExpectations& expected) {
  const int call = next_call();
  if (const RankProcess self = this_process(); self.rank >= 0) {
    if (call < self.call) return;
    run_rank(self, fn);
  }

  const std::string job_key = "MUSTER_JOB_KEY=" + random_job_key();
  const int n = static_cast<int>(ranks.size());
  std::vector<Child> children;
  for (int rank = 0; rank < n; ++rank) {
    RankStart how = ranks[static_cast<size_t>(rank)];
    how.environment.push_back(job_key);
    children.push_back(start(rank, call, how));
  }
  collect(children);
  for (int rank = 0; rank < n; ++rank) {
    const Child& c = children[static_cast<size_t>(rank)];
    const bool to_be_killed =
        std::find(expected.killed.begin(), expected.killed.end(), rank) != expected.killed.end();
    if (!c.text.empty()) {
      ADD_FAILURE() << "rank " << rank << " (pid " << c.pid << ") " << c.text;
    } else if (WIFSIGNALED(c.status) != to_be_killed) {
      ADD_FAILURE() << "rank " << rank << " (pid " << c.pid << ") "
                    << (WIFSIGNALED(c.status)
                            ? fmt::format("was killed by signal {}", WTERMSIG(c.status))
                            : fmt::format("exited with status {} where a signal was to end it",
                                          WEXITSTATUS(c.status)));
    } else if (WIFEXITED(c.status) && WEXITSTATUS(c.status) != 0) {
      ADD_FAILURE() << "rank " << rank << " (pid " << c.pid << ") exited with status "
                    << WEXITSTATUS(c.status);
    }
  }
}

std::string text_of_current_exception() {
  try {
    throw;
  } catch (const Error& e) {
    return fmt::format("threw muster::Error ({}): {}", name_of(e.code()), e.what());
  } catch (const std::exception& e) {
    return fmt::format("threw {}", e.what());
  } catch (...) {
    return "threw something that is no std::exception";
  }
}

bool is_rank_process() { return this_process().rank >= 0; }

int rank_process_main() {
  const RankProcess self = this_process();
  fcntl(self.report, F_SETFD, FD_CLOEXEC);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  [[maybe_unused]] const int status = RUN_ALL_TESTS();
  send_report(self.report, "the test ended before it came to its run_processes call again\n");
  return 1;
}

}  // namespace muster::test
