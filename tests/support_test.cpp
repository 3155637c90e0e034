// The helpers that other tests stand on: ranks as processes, and the watchdog.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "muster/types.h"
#include "support/processes.h"
#include "support/watchdog.h"

namespace muster::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(RunProcesses, GivesEachRankItsEnvironment) {
  run_processes(3, [](int rank) {
    EXPECT_EQ(std::getenv("RANK"), std::to_string(rank));
    EXPECT_STREQ(std::getenv("WORLD_SIZE"), "3");
    EXPECT_STREQ(std::getenv("MASTER_ADDR"), "127.0.0.1");
    EXPECT_NE(std::getenv("MUSTER_JOB_KEY"), nullptr);
  });
}

TEST(RunProcesses, RanksAreOtherProcessesAndEachCallIsItsOwn) {
  const pid_t parent = getpid();
  std::thread([] {}).join();
  run_processes(2, [&](int) { EXPECT_EQ(getpid(), parent) << "in the rank, the body ran afresh"; });
  int seen = 0;
  run_processes(1, [&](int) { seen = 1; });
  EXPECT_EQ(seen, 0) << "a rank changed its parent's memory";
}

TEST(RunProcesses, ExpectedDeathsAreFine) {
  run_processes(2,
                [](int rank) {
                  if (rank == 0) raise(SIGKILL);
                },
                {.killed = {0}});
}

// Bodies that must fail, each run by a test further down in a process of its own.
TEST(MustFail, DISABLED_Expectation) {
  run_processes(2, [](int rank) { EXPECT_NE(rank, 1) << "as it should"; });
}
TEST(MustFail, DISABLED_Exception) {
  run_processes(2, [](int rank) {
    if (rank == 1) throw Error(Result::timeout, "too late");
  });
}
TEST(MustFail, DISABLED_Death) {
  run_processes(2, [](int rank) {
    if (rank == 0) raise(SIGKILL);
  });
}
TEST(MustFail, DISABLED_Survival) {
  run_processes(1, [](int) {}, {.killed = {0}});
}
TEST(MustFail, DISABLED_Exit) {
  run_processes(1, [](int) { _exit(3); });
}
TEST(MustFail, DISABLED_NeverEnds) {
  run_processes(1, [](int) { std::thread([] { pause(); }).join(); });
}

// What a test of this program prints, and its status; all of its processes have ended.
std::string output_of(const std::string& test) {
  const std::string command = "exec 2>&1; MUSTER_TEST_LIMIT=1 /proc/" + std::to_string(getpid()) +
                              "/exe --gtest_also_run_disabled_tests --gtest_filter=" + test +
                              "; echo status $?";
  FILE* run = popen(command.c_str(), "r");
  std::string output;
  for (char buffer[4096]; const size_t n = fread(buffer, 1, sizeof buffer, run);) output.append(buffer, n);
  pclose(run);
  return output;
}

TEST(RunProcesses, FailuresOfRanksAreFailuresOfTheTest) {
  EXPECT_THAT(output_of("MustFail.DISABLED_Expectation"),
              AllOf(HasSubstr("as it should"), HasSubstr("rank 1 (pid"), HasSubstr("status 1")));
  EXPECT_THAT(output_of("MustFail.DISABLED_Exception"),
              AllOf(HasSubstr("threw muster::Error (timeout): too late"), HasSubstr("status 1")));
  EXPECT_THAT(output_of("MustFail.DISABLED_Death"),
              AllOf(HasSubstr("was killed by signal 9"), HasSubstr("status 1")));
  EXPECT_THAT(output_of("MustFail.DISABLED_Survival"),
              AllOf(HasSubstr("where a signal was to end it"), HasSubstr("status 1")));
  EXPECT_THAT(output_of("MustFail.DISABLED_Exit"),
              AllOf(HasSubstr("exited with status 3"), HasSubstr("status 1")));
}

TEST(Watchdog, PrintsStacksOfAllProcessesAndKillsThem) {
  const std::string output = output_of("MustFail.DISABLED_NeverEnds");
  EXPECT_THAT(output, HasSubstr("MustFail.DISABLED_NeverEnds is not done"));
  EXPECT_THAT(output, HasSubstr("status 124"));
  EXPECT_THAT(output, HasSubstr("and its 1 descendants"));
  EXPECT_THAT(output, HasSubstr("pause"));
  EXPECT_THAT(output, HasSubstr("'test-watchdog'"));
}

TEST(Watchdog, ForkedChildrenCanExit) {
  const pid_t child = fork();
  if (child == 0) std::exit(7);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace muster::test
