// A part of a test that runs in a process of its own: with other options of the simulator, or because it ends
// in a fault.
#pragma once

#include <cuda_runtime.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace cuda_sim_test {

struct Child {
  int exit_code = -1;  // -1: it ended by a signal
  int signal = 0;
  std::string output;
  bool says(const std::string& text) const { return output.find(text) != std::string::npos; }
};

// Starts this program afresh on the current test, with more environment ("NAME=value"); there, this call runs
// the body and ends the process: with 1 if an expectation has failed, or else with what the body returns.
// What comes before it in the test is done there, too, but earlier calls of it do nothing. A process that
// hangs is ended after `seconds`, by SIGALRM.
inline Child in_child(const std::vector<std::string>& environment, const std::function<int()>& body,
                      unsigned seconds = 60) {
  static int calls = 0;
  int call = ++calls;
  if (const char* child_of = getenv("CUDA_SIM_CHILD")) {
    if (call != atoi(child_of)) return {};
    alarm(seconds);
    int code = body();
    fflush(stdout);
    exit(testing::Test::HasFailure() ? 1
                                     : code);  // not _exit: the race checker sets another code at the exit
  }
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string filter = std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name();
  std::vector<std::string> words = environment;
  words.push_back("CUDA_SIM_CHILD=" + std::to_string(call));
  std::vector<char*> variables;
  for (std::string& word : words) variables.push_back(word.data());
  for (char** variable = environ; *variable; variable++) {
    std::string name(*variable, strcspn(*variable, "=") + 1);
    bool replaced = std::any_of(environment.begin(), environment.end(),
                                [&](const std::string& e) { return e.starts_with(name); });
    if (!replaced) variables.push_back(*variable);
  }
  variables.push_back(nullptr);
  char* arguments[] = {const_cast<char*>("/proc/self/exe"), filter.data(), nullptr};
  int ends[2];
  Child child;
  if (pipe2(ends, O_CLOEXEC)) {
    ADD_FAILURE() << "pipe2 failed";
    return child;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  pid_t pid = 0;
  int failed = posix_spawn(&pid, arguments[0], &actions, nullptr, arguments, variables.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed) {
    ADD_FAILURE() << "posix_spawn failed";
    close(ends[0]);
    return child;
  }
  char bytes[4096];
  for (ssize_t n; (n = read(ends[0], bytes, sizeof bytes)) > 0;) child.output.append(bytes, n);
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status)) child.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) child.signal = WTERMSIG(status);
  return child;
}

}  // namespace cuda_sim_test
