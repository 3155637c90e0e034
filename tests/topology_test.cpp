// Which cores a process may use: captured control groups, affinity masks, and what follows for waiting.
#include "topology/allowed_cpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "base/host.h"
#include "exec/host/waiter.h"
#include "muster/types.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// A tree of files under a temporary root.
class Tree {
 public:
  explicit Tree(const std::map<std::string, std::string>& files) {
    std::string pattern = (fs::temp_directory_path() / "muster-topology-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    for (const auto& [path, text] : files) {
      const fs::path at = root_ + path;
      fs::create_directories(at.parent_path());
      std::ofstream(at) << text;
    }
  }
  ~Tree() { fs::remove_all(root_); }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

double quota(const std::map<std::string, std::string>& files) { return cpu_quota(Tree(files).root()); }

TEST(CpuQuota, NoneWhereNothingSaysSo) {
  EXPECT_EQ(quota({}), 0);
  EXPECT_EQ(quota({{"/proc/self/cgroup", "0::/\n"}}), 0);
  EXPECT_EQ(quota({{"/proc/self/cgroup", "0::/a/b\n"}, {"/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}}), 0);
  EXPECT_EQ(quota({{"/proc/self/cgroup", "4:cpu,cpuacct:/\n"},
                   {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                   {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}),
            0);
}

TEST(CpuQuota, Version2TakesTheSmallestUpTheHierarchy) {
  EXPECT_EQ(quota({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "150000 100000\n"}}), 1.5);
  EXPECT_EQ(quota({{"/proc/self/cgroup", "0::/user.slice/job/task\n"},
                   {"/sys/fs/cgroup/user.slice/job/task/cpu.max", "max 100000\n"},
                   {"/sys/fs/cgroup/user.slice/job/cpu.max", "400000 200000\n"},
                   {"/sys/fs/cgroup/user.slice/cpu.max", "800000 100000\n"}}),
            2);
  EXPECT_EQ(quota({{"/proc/self/cgroup", "0::/a\n"},
                   {"/sys/fs/cgroup/a/cpu.max", "300000 100000\n"},
                   {"/sys/fs/cgroup/cpu.max", "50000 100000\n"}}),
            0.5);
}

TEST(CpuQuota, Version1InAContainerAndOutside) {
  const std::string cgroup = "12:memory:/docker/1f\n4:cpu,cpuacct:/docker/1f\n1:name=systemd:/docker/1f\n0::/docker/1f\n";
  // A container sees its own group at the mount's root.
  EXPECT_EQ(quota({{"/proc/self/cgroup", cgroup},
                   {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n"},
                   {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}),
            2.5);
  EXPECT_EQ(quota({{"/proc/self/cgroup", cgroup},
                   {"/sys/fs/cgroup/cpu/docker/1f/cpu.cfs_quota_us", "300000\n"},
                   {"/sys/fs/cgroup/cpu/docker/1f/cpu.cfs_period_us", "100000\n"},
                   {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                   {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}),
            3);
  // cpuset is another controller.
  EXPECT_EQ(quota({{"/proc/self/cgroup", "3:cpuset:/x\n"},
                   {"/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000\n"},
                   {"/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"}}),
            0);
}

TEST(CpuQuota, NonsenseIsNoQuota) {
  for (const char* line : {"", "max", "abc def", "100000", "-5 100000", "100000 0", "100000 -1", "nan nan", "1e999 1", "\n\n"})
    EXPECT_EQ(quota({{"/proc/self/cgroup", "0::/a\n"}, {"/sys/fs/cgroup/a/cpu.max", line}}), 0) << line;
  for (const char* cgroup : {"", "\n", ":", "::", "0::", "0::a", "0::a/b", "x", "0:cpu", "0::/../..", "0:::"})
    EXPECT_EQ(quota({{"/proc/self/cgroup", cgroup}}), 0) << cgroup;
}

TEST(AllowedCpus, AreThoseOfTheAffinityMask) {
  const std::vector<int> all = allowed_cpus();
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(all.back(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_THAT(allowed_cpus(), testing::ElementsAre(all.back()));  // the machine's number, not a count from 0
  }).join();
  EXPECT_EQ(allowed_cpus(), all);
}

TEST(HostIdentity, IsNamedByTheHostUnlessReplaced) {
  EXPECT_EQ(host_identity("node7"), "id:node7");
  EXPECT_THAT(host_identity(""), testing::StartsWith(host_name() + "/"));
  EXPECT_EQ(host_identity(""), host_identity(""));
  EXPECT_FALSE(host_name().empty());
}

TEST(WaitPolicy, ShortPatienceWhereRanksShareCores) {
  const WaitPolicy alone = WaitPolicy::choose("auto", 2, 2), shared = WaitPolicy::choose("auto", 2, 1.5);
  EXPECT_GT(alone.polls, 100 * shared.polls);
  EXPECT_TRUE(alone.sleeps && shared.sleeps);
  EXPECT_FALSE(WaitPolicy::choose("spin", 16, 1).sleeps);
  EXPECT_FALSE(WaitPolicy::choose("yield", 16, 1).sleeps);
  EXPECT_TRUE(WaitPolicy::choose("sleep", 2, 64).sleeps);
  EXPECT_THROW(WaitPolicy::choose("nap", 2, 2), Error);
}

}  // namespace
}  // namespace muster
