// Ranks on several hosts with little of what a system gives: memory that may be locked, ports, descriptors.
// And all of it comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "bootstrap_support.h"
#include "hosts_support.h"
#include "muster/muster.h"
#include "support/hosts.h"
#include "support/outcome.h"

namespace muster {
namespace {

using namespace test;  // NOLINT

TEST(HostsLimits, WithoutLockedMemory) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 1}, [](int) {
    const rlimit none{0, 0};
    ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    Communicator c = Communicator::from_environment();
    for (const size_t count : {1, 1000003}) expect_right(c, count);
    c.destroy();
  });
}

// Firewalls let a range of ports through: nothing else listens, data included.
TEST(HostsLimits, APortRangeHoldsForAllConnections) {
  NEED_HOSTS();
  const Variable range("MUSTER_PORT_RANGE", "41000-41019");
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 1, 0, 1}, [](int) {
    Communicator c = Communicator::from_environment();
    expect_right(c, 30011);
    for (const int p : listening_ports()) EXPECT_TRUE(p >= 41000 && p <= 41019) << p;
    c.barrier();
    c.destroy();
  });
}

// Right, or an error on all ranks that says what is short.
void expect_right_or_told(const std::vector<int>& host_of, const std::function<void()>& limit,
                          const std::vector<std::string>& words) {
  const Variable patience("MUSTER_INIT_TIMEOUT", "3"), time("MUSTER_TIMEOUT", "3");
  const Hosts hosts({.hosts = 2});
  hosts.run(host_of, [&](int rank) {
    limit();
    Communicator c;
    const Outcome o = outcome_of([&] {
      c = Communicator::from_environment();
      expect_right(c, 1009);
    });
    bool told = o.code == Result::success || o.code == Result::remote_error || o.code == Result::timeout;
    for (const std::string& word : words) told |= o.text.find(word) != o.text.npos;
    EXPECT_TRUE(told) << rank << ": " << o;
    if (c) c.destroy();
  });
}

TEST(HostsLimits, FewDescriptors) {
  NEED_HOSTS();
  const auto at_most = [](rlim_t soft, rlim_t hard) {
    return [=] {
      const rlimit few{soft, hard};
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    };
  };
  expect_right_or_told({0, 1, 0, 1, 0, 1}, at_most(64, 64), {"ulimit -n", "EMFILE"});
  {  // 64 sockets for each pair
    const Variable threads("NCCL_SOCKET_NTHREADS", "8"), sockets("NCCL_NSOCKS_PERTHREAD", "8");
    expect_right_or_told({0, 1, 0, 1, 0, 1}, at_most(64, 64), {"ulimit -n", "EMFILE"});
  }
  const Hosts hosts({.hosts = 2});
  {  // enough once the soft limit is raised
    const Variable threads("NCCL_SOCKET_NTHREADS", "8"), sockets("NCCL_NSOCKS_PERTHREAD", "8"), network("NCCL_NET", "tcp");
    hosts.run({0, 0, 0, 1, 1, 1}, [&](int) {
      at_most(64, 4096)();
      Communicator c = Communicator::from_environment();
      expect_right(c, 30011);
      rlimit now{};
      getrlimit(RLIMIT_NOFILE, &now);
      EXPECT_EQ(now.rlim_cur, 4096u);
      c.destroy();
    });
  }
  hosts.run({0, 0, 0, 0, 1, 1, 1, 1}, [&](int) {  // enough if the soft limit is raised, or if few are used
    at_most(64, 4096)();
    Communicator c = Communicator::from_environment();
    expect_right(c, 1009);
    c.destroy();
  });
}

TEST(HostsLimits, FewEphemeralPorts) {
  NEED_HOSTS();
  expect_right_or_told({0, 1, 0, 1},
                       [] { std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << "40000 40003\n"; },
                       {"ip_local_port_range", "EADDRINUSE", "EADDRNOTAVAIL"});
}

long resident_kib() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  return 0;
}

TEST(HostsLimits, ResourcesComeBack) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 1, 1}, [](int) {
    Communicator world = Communicator::from_environment();
    const auto rounds = [&](int n) {
      for (int i = 0; i < n; ++i) {
        Communicator c = world.split(0, world.size() - world.rank());
        expect_right(c, 5003);
        c.destroy();
        Communicator again = Communicator::from_environment();
        expect_right(again, 5003);
        again.destroy();
      }
    };
    rounds(6);
    const int descriptors = open_fds();
    const long memory = resident_kib();
    rounds(12);
    EXPECT_LE(open_fds(), descriptors + 2);  // of what another rank still takes leave from
    EXPECT_LE(resident_kib(), memory + 8192);
    world.destroy();
  });
}

}  // namespace
}  // namespace muster
