// Communicators of several real hosts, as far as the kernel can make some on one machine: nothing but the network joins them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "life_support.h"
#include "support/hosts.h"
#include "support/needs_network.h"
#include "support/outcome.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using namespace test;
using testing::ContainsRegex;

void on(const test::Hosts& hosts, const std::vector<int>& host_of, const std::function<void(Communicator&, int rank)>& fn,
        const ProcessExpectations& expected = {}) {
  hosts.run(
      host_of,
      [&](int rank) {
        Communicator c = Communicator::from_environment();
        fn(c, rank);
        c.destroy();
      },
      expected);
}

void expect_all_works(Communicator& c, int rank) {
  expect_works(c);
  Communicator halves = c.split(rank % 2, 0), all = c.split(0, -rank);
  expect_works(halves, 1);
  expect_works(all, 2);
  const int n = c.size();
  std::vector<int> out(100'000, rank), in(out.size());
  group_start();
  c.send(out.data(), out.size(), kInt, (rank + 1) % n);
  c.recv(in.data(), in.size(), kInt, (rank + n - 1) % n);
  group_end();
  EXPECT_EQ(in, std::vector<int>(in.size(), (rank + n - 1) % n));
  halves.destroy();
  all.destroy();
}

TEST(OnHosts, TwoOfTwo) {
  NEED_NETWORK();
  NEED_HOSTS();
  const test::Hosts hosts({.hosts = 2});
  on(hosts, {0, 0, 1, 1}, expect_all_works);
}

TEST(OnHosts, UnevenAndInterleaved) {
  NEED_NETWORK();
  const Wiring wiring{.hosts = 3};
  NEED_HOSTS(wiring);
  const test::Hosts hosts(wiring);
  on(hosts, {0, 1, 0, 2, 1}, expect_all_works);
}

TEST(OnHosts, OverIpv6Only) {
  NEED_NETWORK();
  const Wiring wiring{.hosts = 2, .ipv4 = false, .ipv6 = true};
  NEED_HOSTS(wiring);
  const test::Hosts hosts(wiring);
  on(hosts, {0, 1}, expect_all_works);
}

// Only one of three interfaces leads to the other host, and it isn't the first.
TEST(OnHosts, OverTheInterfaceThatIsRouted) {
  NEED_NETWORK();
  const Wiring wiring{.hosts = 2, .strays = true};
  NEED_HOSTS(wiring);
  const test::Hosts hosts(wiring);
  on(hosts, {0, 1, 1}, expect_all_works);
}

// Who is on a host that is cut off, and who is on another one, names somebody on the other side, within the time set for it; and
// those who still reach each other go on.
TEST(OnHosts, AHostIsCutOffInTheMiddleOfCalls) {
  NEED_NETWORK();
  const Wiring wiring{.hosts = 3};
  NEED_HOSTS(wiring);
  const Variable limit("MUSTER_LINK_TIMEOUT", "2");
  const test::Hosts hosts(wiring);
  on(hosts, {0, 1, 1, 2}, [&](Communicator& c, int rank) {
    expect_works(c);
    std::thread cutter;
    if (rank == 0)
      cutter = std::thread([&] {
        std::this_thread::sleep_for(300ms);
        hosts.pass(2, 0, false);
      });
    std::vector<float> x(200'000, 1), y(x.size());
    const auto start = std::chrono::steady_clock::now();
    const Outcome o = outcome_of([&] {
      for (;;) c.all_reduce(x.data(), y.data(), x.size(), DataType::float32, RedOp::sum);
    });
    if (cutter.joinable()) cutter.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, 15s);
    EXPECT_EQ(o.code, Result::remote_error) << o;
    EXPECT_THAT(o.text, ContainsRegex(rank == 3 ? "rank [012] \\(host host[01], pid" : "rank 3 \\(host host2, pid "));
    if (rank == 3) return;
    const int excluded[] = {3};
    Communicator rest = c.shrink(excluded, ShrinkMode::abort);
    expect_works(rest);
    rest.destroy();
  });
}

// A cable that is out for a moment is no error.
TEST(OnHosts, ACableIsOutForAMoment) {
  NEED_NETWORK();
  NEED_HOSTS();
  const test::Hosts hosts({.hosts = 2});
  on(hosts, {0, 1}, [&](Communicator& c, int rank) {
    expect_works(c);
    std::thread hand;
    if (rank == 0)
      hand = std::thread([&] {
        std::this_thread::sleep_for(100ms);
        hosts.plug(1, 0, false);
        std::this_thread::sleep_for(500ms);
        hosts.plug(1, 0, true);
      });
    std::vector<int> x(50'000, 1), y(x.size());
    for (int i = 0; i < 300; ++i) {
      c.all_reduce(x.data(), y.data(), x.size(), kInt, RedOp::sum);
      ASSERT_EQ(y.back(), 2);
      std::this_thread::sleep_for(3ms);
    }
    if (hand.joinable()) hand.join();
  });
}

}  // namespace
}  // namespace muster
