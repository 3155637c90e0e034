// What the bootstrap's tests share: ranks as threads, fresh processes, network namespaces, environment variables.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "bootstrap/bootstrap.h"

namespace muster::test {

inline Deadline in_seconds(double s) {
  return Deadline::after(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(s)));
}

struct Failure {
  Result code = Result::success;
  std::string text;  // empty: none
};

// Runs f(0) .. f(n - 1) in threads; what each threw.
inline std::vector<Failure> in_threads(int n, const std::function<void(int)>& f) {
  std::vector<Failure> r(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i)
    threads.emplace_back([&, i] {
      try {
        f(i);
      } catch (const Error& e) {
        r[static_cast<size_t>(i)] = {e.code(), e.what()};
      }
    });
  for (auto& t : threads) t.join();
  return r;
}

inline Failure failure_of(const std::function<void()>& f) {
  return in_threads(1, [&](int) { f(); })[0];
}

using Ranks = std::vector<std::unique_ptr<Bootstrap>>;
// All ranks of a communicator, connected in threads; fails the test when one can't.
inline Ranks connect_all(int n, double seconds = 60) {
  const UniqueId id = make_unique_id();
  const Options options = Options::from_environment();
  Ranks ranks(static_cast<size_t>(n));
  for (const Failure& f :
       in_threads(n, [&](int r) { ranks[static_cast<size_t>(r)] = Bootstrap::connect(id, n, r, options, in_seconds(seconds)); }))
    EXPECT_EQ(f.text, "");
  return ranks;
}

inline int open_fds() {
  int n = 0;
  DIR* d = opendir("/proc/self/fd");
  while (readdir(d)) ++n;
  closedir(d);
  return n;
}

// Waits until `done` or, as a failure, half a minute.
inline bool eventually(const std::function<bool()>& done) {
  for (int i = 0; i < 3000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return done();
}

class ScopedEnv {
 public:
  ScopedEnv(const char* name, const std::string& value) : name_(name) {
    if (const char* before = getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedEnv() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// Runs the test "suite.DISABLED_name" of this executable in a new process, under `prefix` (a shell command's beginning).
// Its output is shown when it fails.
inline void in_new_process(const std::string& test, const std::string& prefix = "") {
  std::array<char, 4096> self{};
  ASSERT_GT(readlink("/proc/self/exe", self.data(), self.size() - 1), 0);
  const std::string command = prefix + " '" + self.data() + "' --gtest_also_run_disabled_tests --gtest_filter='" + test + "' 2>&1";
  FILE* p = popen(command.c_str(), "r");
  ASSERT_TRUE(p);
  std::string output;
  std::array<char, 4096> block;
  for (size_t n; (n = fread(block.data(), 1, block.size(), p)) > 0;) output.append(block.data(), n);
  EXPECT_EQ(pclose(p), 0) << command << "\n" << output;
}

inline bool shell(const std::string& command) { return system(command.c_str()) == 0; }

#define SKIP_WITHOUT_NAMESPACES() \
  if (!muster::test::shell("unshare -rn true 2>/dev/null")) GTEST_SKIP() << "unshare -rn is not permitted here"

}  // namespace muster::test
