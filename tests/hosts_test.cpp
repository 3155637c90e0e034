// Communicators whose ranks are on several hosts: data is right whatever the network is like, and all
// resources come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "hosts_support.h"
#include "muster/muster.h"
#include "support/hosts.h"
#include "support/needs_network.h"
#include "support/outcome.h"

namespace muster {
namespace {

using namespace test;  // NOLINT

void expect_right_over(const Wiring& wiring, const std::vector<int>& host_of,
                  const std::vector<size_t>& counts = {1, 1000, 300007}) {
  const Hosts hosts(wiring);
  hosts.run(host_of, [&](int) {
    Communicator c = Communicator::from_environment();
    for (const size_t count : counts) expect_right(c, count);
    c.destroy();
  });
}

TEST(ManyHosts, OneRankEach) {
  NEED_HOSTS();
  expect_right_over({.hosts = 2}, {0, 1}, {0, 1, 3, 17, 1000, 65537, 700001});
}
TEST(ManyHosts, OverUcx) {
  NEED_HOSTS();
  OVER_UCX();
  expect_right_over({.hosts = 2}, {0, 1, 1}, {1, 17, 1000, 300007});
}
TEST(ManyHosts, OverUcxAndIpv6Only) {
  NEED_HOSTS();
  OVER_UCX();
  expect_right_over({.hosts = 2, .ipv4 = false, .ipv6 = true}, {0, 1, 1});
}
TEST(ManyHosts, ThreeAndOne) {
  NEED_HOSTS();
  expect_right_over({.hosts = 2}, {0, 0, 0, 1});
}
TEST(ManyHosts, TwoTwoAndOneOnTwoRails) {
  NEED_HOSTS();
  expect_right_over({.hosts = 3, .rails = 2}, {0, 0, 1, 1, 2});
}
TEST(ManyHosts, FourTakingTurns) {
  NEED_HOSTS();
  expect_right_over({.hosts = 4}, {0, 1, 2, 3, 0, 1, 2}, {1, 30011});
}
TEST(ManyHosts, OverIpv6Only) {
  NEED_HOSTS();
  expect_right_over({.hosts = 2, .ipv4 = false, .ipv6 = true}, {0, 1, 1});
}
TEST(ManyHosts, OneInterfaceOfThreeIsRouted) {
  NEED_HOSTS();
  expect_right_over({.hosts = 2, .strays = true}, {0, 0, 1});
}
TEST(ManyHosts, OneRailIsSlow) {
  const Wiring wiring{.hosts = 2, .rails = 2, .megabits = {{1, 200}}};
  NEED_HOSTS(wiring);
  expect_right_over(wiring, {0, 1}, {1, 300007});
}

// A rank that has nothing more to do leaves; what it sent is still under way.
TEST(ManyHosts, WhatARankSentBeforeItLeftComes) {
  const Wiring wiring{.hosts = 2, .megabits = {{0, 20}}};
  NEED_HOSTS(wiring);
  const Hosts hosts(wiring);
  hosts.run({0, 1, 1}, [](int rank) {
    Communicator c = Communicator::from_environment();
    std::vector<int> data(700'001, -1);
    if (rank == 0) std::iota(data.begin(), data.end(), 5);
    c.broadcast(data.data(), data.data(), data.size(), DataType::int32, 0);
    for (size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], static_cast<int>(i) + 5);
    c.destroy();
  });
}

// Host 1 sees one interface, the others two.
TEST(ManyHosts, HostsWithDifferentInterfaces) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 3, .rails = 2});
  if (!is_rank_process()) hosts.plug(1, 1, false);
  hosts.run({0, 1, 2}, [](int) {
    Communicator c = Communicator::from_environment();
    for (const size_t count : {1, 100003}) expect_right(c, count);
    c.destroy();
  });
}

TEST(ManyHosts, NamesThatAreEqualUpToADotOrAltogether) {
  NEED_HOSTS();
  expect_right_over({.hosts = 2, .names = {"node.a", "node.b"}}, {0, 1}, {1, 30011});
  // Containers: one kernel, one name, and nothing shared.
  expect_right_over({.hosts = 2, .names = {"node", "node"}}, {0, 1}, {1, 30011});
}

// Several communicators between the same ranks at once, each with data of its own.
TEST(ManyHosts, CommunicatorsDontMix) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 1, 0, 1}, [](int) {
    Communicator world = Communicator::from_environment();
    std::vector<Communicator> all;
    for (int i = 0; i < 4; ++i) all.push_back(world.split(0, i % 2 ? -world.rank() : world.rank()));
    std::vector<Floats> out(all.size());
    for (int round = 0; round < 5; ++round) {
      group_start();
      std::vector<Floats> in;
      for (size_t i = 0; i < all.size(); ++i)
        in.push_back(elements(static_cast<int>(i) + round, all[i].rank() * 7u, 20011));
      for (size_t i = 0; i < all.size(); ++i) {
        out[i].assign(20011, -1);
        all[i].all_reduce(in[i].data(), out[i].data(), 20011, kFloat, RedOp::sum);
      }
      group_end();
      for (size_t i = 0; i < all.size(); ++i) {
        Floats expected(20011);
        for (unsigned r = 0; r < 4; ++r) {
          const Floats theirs = elements(static_cast<int>(i) + round, r * 7u, 20011);
          for (size_t k = 0; k < expected.size(); ++k) expected[k] += theirs[k];
        }
        EXPECT_EQ(out[i], expected) << i;
      }
    }
    for (Communicator& c : all) c.destroy();
    world.destroy();
  });
}

// A process that has made a communicator before, and one that hasn't, decide alike.
TEST(ManyHosts, HistoriesDontMatter) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 0, 1, 1}, [](int rank) {
    if (rank == 0 || rank == 3) {
      auto pair = Communicator::init_all(2);
      for (Communicator& c : pair) c.destroy();
    }
    Communicator c = Communicator::from_environment();
    for (size_t count = 1; count < 200000; count *= 19) expect_right(c, count);
    c.destroy();
  });
}

// Protocols that tell arrival by the data itself don't survive streams: whatever is asked for, data is right.
TEST(ManyHosts, WishesForProtocolsDontSpoilData) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  for (const char* protocol : {"LL", "LL128", "Simple"}) {
    const Variable wish("NCCL_PROTO", protocol);
    hosts.run({0, 1}, [](int) {
      Communicator c = Communicator::from_environment();
      Floats data = elements(c.rank(), 0, 2 << 20);
      const Floats expected = sums(2, 0, data.size());
      for (int i = 0; i < 5; ++i) {
        data = elements(c.rank(), 0, data.size());
        c.all_reduce(data.data(), data.data(), data.size(), kFloat, RedOp::sum);
        EXPECT_EQ(data, expected) << i;
      }
      c.destroy();
    });
  }
}

}  // namespace
}  // namespace muster
