// Ranks on several hosts find each other, whatever the networks between them; and the hosts themselves are
// what they seem.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <set>
#include <sstream>

#include "base/host.h"
#include "bootstrap/interfaces.h"
#include "bootstrap_support.h"
#include "support/hosts.h"
#include "support/outcome.h"
#include "support/shell.h"

namespace muster {
namespace {

using namespace test;  // NOLINT
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::unique_ptr<Bootstrap> meet(double seconds = 30) {
  const Options options = Options::from_environment();
  const Rendezvous r = rendezvous_from_environment(options, in_seconds(seconds));
  return Bootstrap::connect(r.id, r.size, r.rank, options, in_seconds(seconds));
}

std::string file_text(const std::string& path) {
  std::ifstream in(path);
  std::string text;
  std::getline(in, text);
  return text;
}

std::string what_ranks_see() {
  struct stat shm {};
  stat("/dev/shm", &shm);
  std::string interfaces;
  for (const Interface& i : list_interfaces()) interfaces += " " + i.name;
  std::ostringstream text;
  text << host_name() << interfaces << " shm " << shm.st_dev << " carrier "
       << file_text("/sys/class/net/rail0/carrier") << " local " << getenv("LOCAL_RANK") << "/"
       << getenv("LOCAL_WORLD_SIZE");
  return text.str();
}

TEST(Hosts, NothingButTheNetworkJoinsThem) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 0, 1}, [](int rank) {
    const auto boot = meet();
    const auto all = boot->all_gather(what_ranks_see(), in_seconds(30));
    EXPECT_EQ(boot->peers()[0].host, "host0");
    EXPECT_EQ(boot->peers()[2].host, "host1");
    EXPECT_THAT(all[0], AllOf(HasSubstr("host0 lo rail0 shm "), HasSubstr("carrier 1 local 0/2")));
    EXPECT_THAT(all[1], AllOf(HasSubstr("host0 lo rail0 shm "), HasSubstr("carrier 1 local 1/2")));
    EXPECT_THAT(all[2], AllOf(HasSubstr("host1 lo rail0 shm "), HasSubstr("carrier 1 local 0/1")));
    const auto shm = [&](int r) {
      return all[static_cast<size_t>(r)].substr(12, all[static_cast<size_t>(r)].find(" carrier") - 12);
    };
    EXPECT_EQ(shm(0), shm(1));
    EXPECT_NE(shm(0), shm(2)) << rank;
    EXPECT_TRUE(std::ifstream("/sys/fs/cgroup").good());
    boot->close();
  });
}

TEST(Hosts, CablesArePulledAndNothingIsLeft) {
  NEED_HOSTS();
  const auto interfaces = list_interfaces().size();
  const int descriptors = open_fds();
  {
    const Hosts hosts({.hosts = 2, .rails = 2, .megabits = {{1, 100}}});
    const auto see = [&](const std::string& command) { return output_of(hosts.inside(0) + command).text; };
    EXPECT_EQ(see("cat /sys/class/net/rail0/carrier"), "1\n");
    hosts.plug(0, 0, false);
    EXPECT_EQ(see("cat /sys/class/net/rail0/carrier /sys/class/net/rail1/carrier"), "0\n1\n");
    hosts.plug(0, 0, true);
    EXPECT_EQ(see("cat /sys/class/net/rail0/carrier"), "1\n");
    EXPECT_EQ(see("hostname"), "host0\n");
    EXPECT_THAT(see("tc qdisc show dev rail1"), HasSubstr("tbf"));
    EXPECT_THAT(see("tc qdisc show dev rail0"), Not(HasSubstr("tbf")));
  }
  EXPECT_EQ(list_interfaces().size(), interfaces);
  EXPECT_EQ(open_fds(), descriptors);
}

void expect_to_meet(const Wiring& wiring, const std::vector<int>& host_of) {
  const Hosts hosts(wiring);
  hosts.run(host_of, [&](int rank) {
    const auto boot = meet();
    const auto all = boot->all_gather(std::to_string(rank), in_seconds(30));
    for (size_t r = 0; r < host_of.size(); ++r) EXPECT_EQ(all[r], std::to_string(r));
    boot->close();
  });
}

TEST(AcrossHosts, OverIpv6Only) {
  NEED_HOSTS();
  expect_to_meet({.hosts = 3, .ipv4 = false, .ipv6 = true}, {0, 1, 2, 1});
}

TEST(AcrossHosts, OverTheOneInterfaceOfThreeThatIsRouted) {
  NEED_HOSTS();
  expect_to_meet({.hosts = 3, .strays = true}, {0, 1, 2, 1});
}

TEST(AcrossHosts, OverTheOneInterfaceThatIsRoutedByIpv6) {
  NEED_HOSTS();
  expect_to_meet({.hosts = 2, .ipv4 = false, .ipv6 = true, .strays = true}, {0, 1});
}

TEST(AcrossHosts, InAPortRange) {
  NEED_HOSTS();
  const Variable range("MUSTER_PORT_RANGE", "41000-41003");
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 1, 0, 1}, [](int rank) {
    const auto boot = meet();
    boot->barrier(in_seconds(30));
    std::ifstream in("/proc/self/net/tcp");
    std::set<int> ports;
    std::string line, index, local, remote, state;
    for (std::getline(in, line); std::getline(in, line);) {
      std::istringstream(line) >> index >> local >> remote >> state;
      if (state == "0A") ports.insert(std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16));
    }
    ports.erase(29400);  // where the launcher's ranks meet; it closes when all have come
    EXPECT_EQ(ports.size(), 2u) << rank;
    for (const int p : ports) EXPECT_TRUE(p >= 41000 && p <= 41003) << p;
    boot->barrier(in_seconds(30));
    boot->close();
  });
}

TEST(AcrossHosts, AHostThatIsCutOffIsNamedInTime) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  if (!is_rank_process()) hosts.pass(1, 0, false);
  hosts.run({0, 0, 1}, [](int rank) {
    const auto f = failure_of([&] { meet(2)->close(); });
    EXPECT_EQ(f.code, Result::timeout);
    if (rank == 2)
      EXPECT_THAT(f.text, HasSubstr("10.77.0.1"));
    else
      EXPECT_THAT(f.text, HasSubstr("2"));
  });
}

TEST(AcrossHosts, TooFewDescriptorsOnOneHostIsAnErrorOnAll) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 1, 0}, [](int rank) {
    if (rank == 1) {
      const rlimit few{8, 8};
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    }
    const auto f = failure_of([&] { meet(5)->close(); });
    EXPECT_NE(f.text, "");
    if (rank == 1) {
      EXPECT_EQ(f.code, Result::system_error);
      EXPECT_THAT(f.text, HasSubstr("EMFILE"));
    }
  });
}

}  // namespace
}  // namespace muster
