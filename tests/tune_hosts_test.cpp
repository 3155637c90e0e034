// `muster tune` as the ranks of a job: on one host, and on hosts that are network namespaces.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "muster/muster.h"
#include "plan/constants.h"
#include "support/hosts.h"
#include "support/outcome.h"
#include "support/processes.h"
#include "support/shell.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using test::Hosts;
using test::Output;
using test::output_of;
using test::Variable;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class TuneHosts : public testing::Test {
 protected:
  TuneHosts() {
    // Ranks that are processes of this test find the same folder.
    const char* made = std::getenv("MUSTER_TEST_FOLDER");
    std::string pattern = (fs::temp_directory_path() / "muster-tune-XXXXXX").string();
    folder_ = made ? made : mkdtemp(pattern.data());
    mine_ = !made;
    setenv("MUSTER_TEST_FOLDER", folder_.c_str(), 1);
  }
  ~TuneHosts() override {
    if (!mine_) return;
    fs::remove_all(folder_);
    unsetenv("MUSTER_TEST_FOLDER");
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  static std::string text_of(const std::string& file) { return output_of("cat " + file).text; }

 private:
  std::string folder_;
  bool mine_ = false;
};

// Rank r on host host_of[r]; what all of them print, and rank 0's exit status.
Output tune(const Hosts& hosts, const std::vector<int>& host_of, const std::string& flags) {
  std::string script;
  for (size_t r = host_of.size(); r-- > 0;)
    script += hosts.inside(host_of[r]) + fmt::format(
                                             "env -i HOME=/nonexistent NCCL_NET=tcp RANK={} WORLD_SIZE={} "
                                             "MASTER_ADDR={} MASTER_PORT=29400 {} tune {}{}\n",
                                             r, host_of.size(), hosts.address(host_of[0]), MUSTER_TOOL, flags,
                                             r > 0 ? " &" : "");
  return output_of("{ " + script + "status=$?; wait; exit $status; } 2>&1");
}

Constants constants_of(const std::string& text) {
  Constants all = Constants::built_in();
  all.override_with(Constants::read(text, "test"), "test");
  return all;
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST_F(TuneHosts, AJobOfOneHostIsMeasuredByItsRanks) {
  const std::string file = path("one");
  const Output o = output_of("env -i HOME=/nonexistent PATH=$PATH " MUSTER_TOOL " run -n 3 " MUSTER_TOOL
                             " tune --seconds 0.05 --output " +
                             file + " 2>&1");
  ASSERT_EQ(o.status, 0) << o.text;
  EXPECT_EQ(count(o.text, "Written to"), 1) << o.text;  // rank 0 alone says so
  const std::string text = text_of(file);
  EXPECT_THAT(text, AllOf(StartsWith("# Muster "), HasSubstr("\nhost.call"), Not(HasSubstr("network."))));
  const Constants tuned = constants_of(text);
  bool of_three = false;
  for (const MeasuredRow& row : tuned.calls().rows()) of_three |= row.ranks == 3;
  EXPECT_TRUE(of_three) << text;
  const Output used = output_of("env -i HOME=/nonexistent PATH=$PATH MUSTER_TUNING_PROFILE=" + file +
                                " " MUSTER_TOOL " plan all_gather --size 1M --host --ranks 3 2>&1");
  EXPECT_THAT(used.text, HasSubstr("constants  " + file));
}

TEST_F(TuneHosts, ALaunchersRanksAreNotChosenAnew) {
  const Output o = output_of("env -i HOME=/nonexistent PATH=$PATH " MUSTER_TOOL " run -n 2 " MUSTER_TOOL
                             " tune --ranks 2 --output " +
                             path("x") + " 2>&1");
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.text, HasSubstr("--ranks 2: a launcher has started the ranks that measure"));
}

TEST_F(TuneHosts, SlowCablesAreInTheProfileAndAllRanksChooseByIt) {
  NEED_HOSTS();
  constexpr int kMegabits = 1000;
  const Hosts hosts({.hosts = 2, .megabits = {{0, kMegabits}}});
  const std::string file = path("two");
  if (!test::is_rank_process()) {
    const Output o = tune(hosts, {0, 1, 0}, "--seconds 0.05 --output " + file);
    ASSERT_EQ(o.status, 0) << o.text;
    EXPECT_EQ(count(o.text, "Written to"), 1) << o.text;
    const std::string text = text_of(file);
    const Constants tuned = constants_of(text);
    for (const char* name : {"network.tcp.latency", "network.tcp.rank"})
      EXPECT_THAT(tuned.get(name).source, HasSubstr("2 hosts of 1 rank: ")) << text;
    // Nothing goes faster than the cable; what shares the machine with this may make it slower.
    constexpr double kGbytes = kMegabits / 8e3;
    EXPECT_LT(tuned("network.tcp.rank"), 1.1 * kGbytes) << text;
    EXPECT_GT(tuned("network.tcp.rank"), 0.05 * kGbytes) << text;
    EXPECT_GT(tuned("network.tcp.latency"), 1) << text;
    EXPECT_THAT(text,
                AllOf(HasSubstr("3 ranks on 2 hosts"), HasSubstr("\nhost.call"), HasSubstr("\ncalls ")));
  }
  const Variable profile("MUSTER_TUNING_PROFILE", file);
  hosts.run({0, 1, 0}, [](int rank) {
    Communicator c = Communicator::from_environment();
    const std::string said = c.explain("all_reduce", 1 << 20, DataType::float32);
    EXPECT_THAT(said, HasSubstr("by the tuning profile")) << rank;
    std::vector<float> in(1 << 20, static_cast<float>(rank + 1)), out(1 << 20, -1);
    c.all_reduce(in.data(), out.data(), in.size(), DataType::float32, RedOp::sum);
    for (const float f : out) ASSERT_EQ(f, 6);
    c.destroy();
  });
}

TEST_F(TuneHosts, HostsWithDisksOfTheirOwnGetItToo) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  const std::string file = "/dev/shm/profile";  // each host has its own
  const Output o = tune(hosts, {0, 1}, "--seconds 0.02 --output " + file);
  ASSERT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("on each of 2 hosts"));
  const std::string one = output_of(hosts.inside(0) + "cat " + file).text,
                    other = output_of(hosts.inside(1) + "cat " + file).text;
  EXPECT_THAT(one, StartsWith("# Muster "));
  EXPECT_EQ(one, other);
  const Output nowhere = tune(hosts, {0, 1}, "--seconds 0.02 --output /nowhere/x");
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_THAT(nowhere.text,
              AllOf(HasSubstr("rank 0 (host host0)"), HasSubstr("/nowhere/x"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace muster
