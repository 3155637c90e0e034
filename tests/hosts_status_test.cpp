// `muster status` on each of several hosts: what can be seen there names the ranks that are behind or ahead,
// and says where the others are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "comm/host_status.h"
#include "comm/verdict.h"
#include "life_support.h"
#include "muster/muster.h"
#include "support/hosts.h"
#include "support/needs_network.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using namespace test;  // NOLINT
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Ints = std::vector<int>;

void add_up(Communicator& c, int times) {
  for (int i = 0; i < times; ++i) {
    int x = 1, y = 0;
    c.all_reduce(&x, &y, 1, kInt, RedOp::sum);
    ASSERT_EQ(y, c.size());
  }
}

// What the processes tell of this communicator, looked at until it is as wanted; the test's time limit ends
// it.
template <class F>
Verdict judge_until(const Ints& pids, int size, F wanted) {
  for (;;) {
    const HostStatus host = read_host_status(pids, 20ms);
    for (const CommunicatorStatus& c : host.communicators)
      if (c.size == size)
        if (Verdict v = judge(c); wanted(v)) return v;
    std::this_thread::sleep_for(5ms);
  }
}

// One stopped rank of eight: its host names it, the other one says that it lacks nobody itself.
TEST(HostsStatus, AStoppedRankIsNamedOnItsHost) {
  NEED_HOSTS();
  static constexpr int kStopped = 5;
  const test::Hosts hosts({.hosts = 2});
  hosts.run({0, 0, 0, 0, 1, 1, 1, 1}, [](int rank) {
    Communicator c = Communicator::from_environment();
    const Ints pids = gather(c, getpid());  // call 1
    add_up(c, 16);
    if (rank == kStopped) raise(SIGSTOP);
    std::thread reader;
    if (rank == 2)
      reader = std::thread([&] {
        const Verdict far = judge_until({pids.begin(), pids.begin() + 4}, 8, [](const Verdict& v) {
          return v.kind == Verdict::Kind::level && v.call == 18;
        });
        EXPECT_THAT(far.behind, IsEmpty());
        EXPECT_THAT(far.text, HasSubstr("Ranks 4..7 are on other hosts: run `muster status` there, too"));
        const Verdict near = judge_until({pids.begin() + 4, pids.end()}, 8, [](const Verdict& v) {
          return v.behind.size() == 1 && v.call == 18;
        });
        EXPECT_THAT(near.behind, ElementsAre(kStopped));
        EXPECT_THAT(near.halted, ElementsAre(kStopped));
        EXPECT_THAT(
            near.text,
            HasSubstr(
                "Rank 5 (pid " + std::to_string(pids[kStopped]) +
                ", stopped by a signal) is behind by 1 call: it has started call 17, the other 3 call 18."));
        EXPECT_THAT(near.text, HasSubstr("Ranks 0..3 are on other hosts"));
        kill(pids[kStopped], SIGCONT);
      });
    add_up(c, 1);  // right, in the end
    if (reader.joinable()) reader.join();
    add_up(c, 1);
    c.destroy();
  });
}

// 32 ranks of two hosts, of which two, one on each, do one call more than the others, or one call less.
void two_of_32(bool more) {
  NEED_NETWORK();
  constexpr int kProcesses = 4, kThreads = 8, kRanks = kProcesses * kThreads, kCalls = 30;
  run_processes(kProcesses, [&](int process) {
    const int host = process / 2;
    const Variable identity("NCCL_HOSTID", "host" + std::to_string(host));
    Communicator some = Communicator::from_environment();
    const Ints pids = gather(some, getpid());
    const Ints here{pids[static_cast<size_t>(2 * host)], pids[static_cast<size_t>(2 * host + 1)]};
    UniqueId id{};
    if (process == 0) id = make_unique_id();
    some.broadcast(&id, &id, sizeof id, DataType::uint8, 0);
    std::atomic<bool> seen{false};
    std::vector<std::thread> ranks;
    for (int t = 0; t < kThreads; ++t)
      ranks.emplace_back([&, rank = process * kThreads + t] {
        Communicator c = Communicator::init(kRanks, rank, id);
        add_up(c, kCalls);
        const bool few = rank == 3 || rank == 17;
        while (few != more && !seen) std::this_thread::sleep_for(1ms);
        add_up(c, 1);
        c.destroy();
      });
    const Verdict v = judge_until(here, kRanks, [&](const Verdict& w) {
      return w.kind == Verdict::Kind::apart && w.behind.size() + w.ahead.size() == 1 &&
             w.call == static_cast<uint64_t>(more ? kCalls : kCalls + 1);
    });
    const Ints one{host == 0 ? 3 : 17}, none;
    EXPECT_EQ(v.ahead, more ? one : none);
    EXPECT_EQ(v.behind, more ? none : one);
    EXPECT_THAT(v.text,
                HasSubstr(more ? "is ahead by 1 call: it has started call 31, the other 15 call 30"
                               : "is behind by 1 call: it has started call 30, the other 15 call 31"));
    some.barrier();  // all have looked
    seen = true;
    for (std::thread& t : ranks) t.join();
    some.destroy();
  });
}
TEST(HostsStatus, NamesTheTwoThatAreAhead) { two_of_32(true); }
TEST(HostsStatus, NamesTheTwoThatAreBehind) { two_of_32(false); }

}  // namespace
}  // namespace muster
