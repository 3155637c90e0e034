// What the bootstrap's tests share: ranks as threads, fresh processes, network namespaces, environment
// variables.
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
  return Deadline::after(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(s)));
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
  try {
    f();
  } catch (const Error& e) {
    return {e.code(), e.what()};
  }
  return {};
}

using Ranks = std::vector<std::unique_ptr<Bootstrap>>;
// All ranks of a communicator, connected in threads; fails the test when one can't.
inline Ranks connect_all(int n, double seconds = 60) {
  const UniqueId id = make_unique_id();
  const Options options = Options::from_environment();
  Ranks ranks(static_cast<size_t>(n));
  for (const Failure& f : in_threads(n, [&](int r) {
         ranks[static_cast<size_t>(r)] = Bootstrap::connect(id, n, r, options, in_seconds(seconds));
       }))
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

// Runs the current test alone in a new process of this executable, under `prefix` (the beginning of a shell
// command).
inline void rerun_in_new_process(const std::string& prefix) {
  std::array<char, 4096> self{};
  ASSERT_GT(readlink("/proc/self/exe", self.data(), self.size() - 1), 0);
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string command = fmt::format("MUSTER_TEST_INNER=1 {} '{}' --gtest_filter='{}.{}' 2>&1", prefix,
                                          self.data(), test->test_suite_name(), test->name());
  FILE* p = popen(command.c_str(), "r");
  ASSERT_TRUE(p);
  std::string output;
  std::array<char, 4096> block;
  for (size_t n; (n = fread(block.data(), 1, block.size(), p)) > 0;) output.append(block.data(), n);
  EXPECT_EQ(pclose(p), 0) << command << "\n" << output;
}
// First in a test: what follows happens in a new process only.
#define IN_NEW_PROCESS(prefix)                                                         \
  if (!getenv("MUSTER_TEST_INNER")) return muster::test::rerun_in_new_process(prefix); \
  static_assert(true)

inline bool shell(const std::string& command) { return system(command.c_str()) == 0; }

// First in a test: what follows happens in a new process in a network namespace of its own.
#define IN_NEW_NETWORK()                                    \
  if (!muster::test::shell("unshare -rn true 2>/dev/null")) \
    GTEST_SKIP() << "unshare -rn is not permitted here";    \
  IN_NEW_PROCESS("unshare -rn")

}  // namespace muster::test
