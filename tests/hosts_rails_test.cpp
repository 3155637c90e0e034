// Several interfaces per host, named by NCCL_SOCKET_IFNAME: all that both ends have carry data, whatever
// hosts have; when one of them fails in a call the others take its place, and when all do it is an error
// that names who can't be reached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "hosts_support.h"
#include "muster/muster.h"
#include "support/hosts.h"
#include "support/outcome.h"

namespace muster {
namespace {

using namespace test;  // NOLINT
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;

// Bytes that this host has sent by an interface.
uint64_t sent_by(const std::string& interface) {
  std::ifstream in("/proc/self/net/dev");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == line.npos || line.substr(0, colon).find(interface) == line.npos) continue;
    std::istringstream numbers(line.substr(colon + 1));
    uint64_t n = 0;
    for (int i = 0; i < 9; ++i) numbers >> n;
    return n;
  }
  return 0;
}

TEST(HostsRails, BothCarryData) {
  for (const bool ipv4 : {true, false}) {
    const Wiring wiring{.hosts = 2, .rails = 2, .ipv4 = ipv4, .ipv6 = !ipv4};
    NEED_HOSTS(wiring);
    const Variable names("NCCL_SOCKET_IFNAME", "rail"), network("NCCL_NET", "tcp");
    const Hosts hosts(wiring);
    hosts.run({0, 1, 1}, [](int) {
      Communicator c = Communicator::from_environment();
      for (const size_t count : {1, 1000, 300007}) expect_right(c, count);
      c.barrier();
      for (const char* rail : {"rail0", "rail1"}) EXPECT_GT(sent_by(rail), 1u << 20) << rail;
      c.destroy();
    });
  }
}

// Routes lead to rail0 whichever is meant, so what is named must be used all the same.
TEST(HostsRails, OneNetworkOfSeveral) {
  const Wiring wiring{.hosts = 2, .rails = 2, .one_network = true};
  NEED_HOSTS(wiring);
  const Variable network("NCCL_NET", "tcp");
  for (const bool both : {false, true}) {
    const Variable names("NCCL_SOCKET_IFNAME", both ? "rail" : "=rail1");
    const Hosts hosts(wiring);
    hosts.run({0, 1, 1}, [&](int) {
      Communicator c = Communicator::from_environment();
      for (const size_t count : {1, 300007}) expect_right(c, count);
      c.barrier();
      EXPECT_GT(sent_by("rail1"), both ? 300u << 10 : 1u << 20);
      EXPECT_TRUE(both ? sent_by("rail0") > 300u << 10 : sent_by("rail0") < 300u << 10) << sent_by("rail0");
      c.destroy();
    });
  }
}

// Either interface of a host answers who looks for the other, so what is sent by one may never come back by it.
TEST(HostsRails, OneSwitchOfSeveral) {
  const Wiring wiring{.hosts = 2, .rails = 2, .one_network = true, .one_switch = true};
  NEED_HOSTS(wiring);
  const Variable network("NCCL_NET", "tcp");
  for (const char* interfaces : {"=rail1", "rail"}) {
    const Variable names("NCCL_SOCKET_IFNAME", interfaces);
    const Hosts hosts(wiring);
    hosts.run({0, 1, 1}, [&](int) {
      Communicator c = Communicator::from_environment();
      for (const size_t count : {1, 100003}) expect_right(c, count);
      c.destroy();
    });
  }
}

TEST(HostsRails, SeveralStreamsOfEach) {
  NEED_HOSTS();
  const Variable names("NCCL_SOCKET_IFNAME", "rail"), threads("NCCL_SOCKET_NTHREADS", "2"),
      sockets("NCCL_NSOCKS_PERTHREAD", "3");
  const Hosts hosts({.hosts = 2, .rails = 2});
  hosts.run({0, 1, 0}, [](int) {
    Communicator c = Communicator::from_environment();
    for (const size_t count : {1, 100003}) expect_right(c, count);
    c.destroy();
  });
}

TEST(HostsRails, HaveThePortsOfTheRange) {
  NEED_HOSTS();
  const Variable names("NCCL_SOCKET_IFNAME", "rail"), range("MUSTER_PORT_RANGE", "41000-41019");
  const Hosts hosts({.hosts = 2, .rails = 2});
  hosts.run({0, 1, 0, 1}, [](int) {
    Communicator c = Communicator::from_environment();
    expect_right(c, 30011);
    for (const int p : listening_ports()) EXPECT_TRUE(p >= 41000 && p <= 41019) << p;
    c.barrier();
    c.destroy();
  });
}

// The only network that both hosts have is one's first and the other's second.
TEST(HostsRails, HostsShareOneOfTheirs) {
  NEED_HOSTS();
  const Variable names("NCCL_SOCKET_IFNAME", "rail");
  for (const int first : {0, 1}) {
    const Hosts hosts({.hosts = 2, .rails = 3});
    if (!is_rank_process()) {
      hosts.plug(0, 0, false);
      hosts.plug(1, 2, false);
    }
    hosts.run({first, 1 - first, 1}, [&](int) {
      const Variable meeting("MASTER_ADDR", hosts.address(first, 1));
      Communicator c = Communicator::from_environment();
      for (const size_t count : {1, 100003}) expect_right(c, count);
      c.destroy();
    });
  }
}

// Each rank names another set.
TEST(HostsRails, RanksThatNameDifferentOnes) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2, .rails = 2});
  hosts.run({0, 1, 0, 1}, [&](int rank) {
    const char* const sets[] = {"rail0", "rail0,rail1", "rail1,rail0", "rail"};
    const Variable names("NCCL_SOCKET_IFNAME", sets[rank]);
    Communicator c = Communicator::from_environment();
    for (const size_t count : {1, 100003}) expect_right(c, count);
    c.destroy();
  });
}

// All-reduces, each looked at: `calls` of them, or until one fails.
Outcome all_reduces(Communicator& c, int calls, const std::function<void(int call)>& before) {
  Floats in = elements(c.rank(), 0, 1 << 20), out(in.size());
  const Floats right = sums(c.size(), 0, out.size());
  Outcome o;
  for (int i = 0; i < calls && o.code == Result::success; ++i) {
    before(i);
    o = outcome_of([&] { c.all_reduce(in.data(), out.data(), in.size(), kFloat, RedOp::sum); });
    if (o.code != Result::success) break;
    if (out != right) ADD_FAILURE() << "call " << i;
    out.assign(out.size(), -1);
  }
  return o;
}

std::string text_of(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// Its cable is pulled, or the switch loses everything: the calls go on by the other, and who says so names both.
TEST(HostsRails, OneIsLostInACall) {
  NEED_HOSTS();
  const Variable names("NCCL_SOCKET_IFNAME", "rail"), link("MUSTER_LINK_TIMEOUT", "4"),
      network("NCCL_NET", "tcp");
  for (const bool unplug : {true, false}) {
    const Hosts hosts({.hosts = 2, .rails = 2});
    const std::string log = testing::TempDir() + "muster_lost_rail";
    const Variable level("NCCL_DEBUG", "WARN"), file("NCCL_DEBUG_FILE", log);
    if (!is_rank_process()) std::remove(log.c_str());
    hosts.run({0, 1, 1}, [&](int rank) {
      Communicator c = Communicator::from_environment();
      const Outcome o = all_reduces(c, 30, [&](int call) {
        if (rank == 0 && call == 10) unplug ? hosts.plug(1, 1, false) : hosts.pass(1, 1, false);
      });
      EXPECT_EQ(o.code, Result::success) << o;
      c.barrier();
      c.destroy();
    });
    if (is_rank_process()) continue;
    const std::string said = text_of(log);
    std::remove(log.c_str());
    EXPECT_THAT(said, ContainsRegex("WARN the tcp connection between rank 0 .host host0.* and rank [12] .host "
                                          "host1.* has lost its stream .*rail1.*sent again"));
  }
}

// It is plugged in again when it has been given up: it is dialed anew, and both carry data.
TEST(HostsRails, OneIsLostAndComesBack) {
  for (const bool ipv4 : {true, false}) {
    const Wiring wiring{.hosts = 2, .rails = 2, .ipv4 = ipv4, .ipv6 = !ipv4};
    NEED_HOSTS(wiring);
    const Variable names("NCCL_SOCKET_IFNAME", "rail"), link("MUSTER_LINK_TIMEOUT", "4"), network("NCCL_NET", "tcp");
    const std::string log = testing::TempDir() + "muster_rail_back";
    const Variable level("NCCL_DEBUG", "WARN"), file("NCCL_DEBUG_FILE", log + "_%p");
    const Hosts hosts(wiring);
    hosts.run({0, 1}, [&](int rank) {
      Communicator c = Communicator::from_environment();
      const std::string mine = log + "_" + std::to_string(getpid());
      std::ofstream(mine).flush();
      // Until both have seen it.
      const auto all_reduces_until = [&](const std::string& said) {
        for (float done = 0; done < 2;) {
          const Outcome o = all_reduces(c, 2, [](int) {});
          ASSERT_EQ(o.code, Result::success) << o;
          const float here = text_of(mine).find(said) != std::string::npos ? 1 : 0;
          c.all_reduce(&here, &done, 1, kFloat, RedOp::sum);
        }
      };
      expect_right(c, 300007);
      if (rank == 0) hosts.plug(1, 1, false);
      all_reduces_until("has lost its stream");
      if (rank == 0) hosts.plug(1, 1, true);
      all_reduces_until("again, and calls use it");
      const uint64_t before = sent_by("rail1");
      EXPECT_EQ(all_reduces(c, 10, [](int) {}).code, Result::success);
      c.barrier();
      EXPECT_GT(sent_by("rail1"), before + (1u << 20));
      EXPECT_THAT(text_of(mine), ContainsRegex("WARN the tcp connection between rank [01] .host host[01].* and rank [01] .host host[01].* "
                                               "has its stream .*rail1.* again"));
      std::remove(mine.c_str());
      c.destroy();
    });
  }
}

// All of them: an error that names who can't be reached, behind which the ranks of a host meet again.
TEST(HostsRails, AllAreLostInACall) {
  NEED_HOSTS();
  const Variable names("NCCL_SOCKET_IFNAME", "rail"), link("MUSTER_LINK_TIMEOUT", "2"),
      network("NCCL_NET", "tcp");
  const Hosts hosts({.hosts = 2, .rails = 2});
  hosts.run({0, 1, 1}, [&](int rank) {
    Communicator c = Communicator::from_environment();
    const Outcome o = all_reduces(c, 1'000'000, [&](int call) {
      for (const int rail : {0, 1})
        if (rank == 0 && call == 5) hosts.plug(1, rail, false);
    });
    EXPECT_EQ(o.code, Result::remote_error) << o;
    EXPECT_THAT(o.text, AnyOf(HasSubstr("rank 0 (host host0"), HasSubstr("(host host1"))) << o;
    const std::vector<int> others = rank == 0 ? std::vector<int>{1, 2} : std::vector<int>{0};
    Communicator rest = c.shrink(others, ShrinkMode::abort);
    expect_right(rest, 1000);
    rest.destroy();
    c.abort();
  });
}

}  // namespace
}  // namespace muster
