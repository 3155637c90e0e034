#include "support/watchdog.h"

#include <dirent.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

namespace muster::test {
namespace {

using namespace std::chrono_literals;

int stack_signal() { return SIGRTMAX - 2; }

void say(const std::string& text) {
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
}

extern "C" void print_own_stack(int) {
  const int saved = errno;
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  errno = saved;
}

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> tids;
  if (DIR* dir = opendir(fmt::format("/proc/{}/task", pid).c_str())) {
    while (const dirent* entry = readdir(dir))
      if (entry->d_name[0] != '.') tids.push_back(std::atoi(entry->d_name));
    closedir(dir);
  }
  return tids;
}

std::string executable_of(pid_t pid) {
  char path[4096];
  const ssize_t n = readlink(fmt::format("/proc/{}/exe", pid).c_str(), path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : "?";
}

bool blocks_stack_signal(pid_t pid, pid_t tid) {
  std::ifstream in(fmt::format("/proc/{}/task/{}/status", pid, tid));
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("SigBlk:"))
      return std::stoull(line.substr(7), nullptr, 16) >> (stack_signal() - 1) & 1;
  return true;
}

// Lives as long as the process, and is never destroyed: a forked child that exits must not wait for the
// thread, which it doesn't have.
class Watchdog {
 public:
  explicit Watchdog(std::chrono::seconds limit) : limit_(limit) {
    std::thread([this] { watch(); }).detach();
  }

  void begin(const std::string& test) {
    std::lock_guard lock(mutex_);
    test_ = test;
    const bool is_long = test_.find("Long") != test_.npos;
    deadline_ = std::chrono::steady_clock::now() + limit_ * (is_long ? 9 : 1);
    changed_.notify_all();
  }
  void end() {
    std::lock_guard lock(mutex_);
    test_.clear();
  }

 private:
  void watch() {
    // Signals sent to the process are for the tests' own threads.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    prctl(PR_SET_NAME, "test-watchdog");
    std::unique_lock lock(mutex_);
    for (;;) {
      if (test_.empty()) {
        changed_.wait(lock);
        continue;
      }
      changed_.wait_for(lock, 100ms);
      if (!test_.empty() && std::chrono::steady_clock::now() >= deadline_) expire();
    }
  }

  [[noreturn]] void expire() {
    say(
        fmt::format("\n[watchdog] {} is not done after its time limit (MUSTER_TEST_LIMIT={} s); stacks of "
                    "all its threads follow\n",
                    test_, limit_.count()));
    const std::vector<pid_t> children = descendants_of(getpid());
    print_stacks(getpid());
    for (const pid_t child : children) print_stacks(child);
    for (const pid_t child : children) kill(child, SIGKILL);
    say(fmt::format("[watchdog] ended {} and its {} descendants\n", getpid(), children.size()));
    _exit(124);
  }

  const std::chrono::seconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string test_;  // empty between tests
  std::chrono::steady_clock::time_point deadline_;
};

class Listener : public testing::EmptyTestEventListener {
 public:
  explicit Listener(Watchdog* watchdog) : watchdog_(watchdog) {}

 private:
  void OnTestStart(const testing::TestInfo& info) override {
    watchdog_->begin(fmt::format("{}.{}", info.test_suite_name(), info.name()));
  }
  void OnTestEnd(const testing::TestInfo&) override { watchdog_->end(); }
  Watchdog* watchdog_;
};

}  // namespace

void install_stack_printer() {
  void* frame[1];
  backtrace(frame, 1);  // loads what it needs now, because a signal handler must not
  struct sigaction action {};
  action.sa_handler = print_own_stack;
  action.sa_flags = SA_RESTART;
  sigaction(stack_signal(), &action, nullptr);
}

void install_watchdog() {
  const char* text = std::getenv("MUSTER_TEST_LIMIT");
  const int seconds = text ? std::atoi(text) : 60;
  if (seconds <= 0) return;
  static auto* watchdog = new Watchdog(std::chrono::seconds(seconds));
  testing::UnitTest::GetInstance()->listeners().Append(new Listener(watchdog));
}

std::vector<pid_t> descendants_of(pid_t pid) {
  std::vector<pid_t> found;
  for (const pid_t tid : threads_of(pid)) {
    std::istringstream children(first_line(fmt::format("/proc/{}/task/{}/children", pid, tid)));
    for (pid_t child; children >> child;) {
      found.push_back(child);
      for (const pid_t grandchild : descendants_of(child)) found.push_back(grandchild);
    }
  }
  return found;
}

void print_stacks(pid_t pid) {
  say(fmt::format("[watchdog] process {} {}\n", pid, executable_of(pid)));
  const bool answers = executable_of(pid) == executable_of(getpid());  // others would die of the signal
  for (const pid_t tid : threads_of(pid)) {
    const std::string where = fmt::format("/proc/{}/task/{}", pid, tid);
    say(fmt::format("[watchdog]   thread {} '{}' waits in {}\n", tid, first_line(where + "/comm"),
                    first_line(where + "/wchan")));
    if (!answers || blocks_stack_signal(pid, tid)) continue;
    syscall(SYS_tgkill, pid, tid, stack_signal());
    std::this_thread::sleep_for(50ms);  // one stack at a time
  }
}

}  // namespace muster::test
