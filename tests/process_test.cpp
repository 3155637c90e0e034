// Telling whether another process still runs.
#include "base/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster {
namespace {

TEST(Process, IsReadByItsNumber) {
  const ProcessStatus self = read_process(getpid());
  EXPECT_EQ(self.parent, getppid());
  EXPECT_EQ(self.name, "process_test");
  EXPECT_GT(std::stoll(self.start), 0);
  EXPECT_EQ(read_process(1 << 30).start, "");
  EXPECT_THAT(pid_namespace(), testing::StartsWith("pid:["));
}

TEST(Process, HasEndedWhenItIsAZombieGoneOrAnother) {
  const pid_t pid = fork();
  if (pid == 0)
    for (;;) pause();
  const std::string start = read_process(pid).start;
  EXPECT_FALSE(has_ended(pid, start));
  kill(pid, SIGSTOP);
  EXPECT_FALSE(has_ended(pid, start)) << "stopped";
  EXPECT_TRUE(has_ended(pid, "1")) << "a later process of that number";
  kill(pid, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(has_ended(pid, start)) << "not waited for";
  waitpid(pid, nullptr, 0);
  EXPECT_TRUE(has_ended(pid, start));
}

}  // namespace
}  // namespace muster
