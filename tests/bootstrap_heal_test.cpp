// Ranks die, stop, leave or lose their network, and the others' ring closes behind them: who stays hears all
// that the others who stay tell, and why the rest isn't there.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>

#include "bootstrap_support.h"
#include "support/hosts.h"
#include "support/outcome.h"

namespace muster {
namespace {

using namespace test;  // NOLINT
using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks = 8;

// What the processes of one test share.
struct Board {
  std::atomic<int> id_ready{0}, connected{0}, tell{0}, go{0};
  std::atomic<int> padding{0};  // bytes of a text behind its number
  UniqueId id{};
  std::atomic<int> told[kRanks] = {};            // by origin
  std::atomic<int> heard[kRanks][kRanks] = {};   // by rank, by origin
  std::atomic<int> out_of_order{0};
  std::atomic<uint32_t> deaths[kRanks] = {};     // by rank: a bit for each
  std::atomic<int> reports[kRanks] = {};
};

// A rank in a process of its own. Up to the round that `tell` says it tells a text each.
pid_t start_rank(Board* b, int rank) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (rank == 0) {
    b->id = make_unique_id();
    b->id_ready = 1;
  }
  const bool ready = eventually([&] { return b->id_ready.load() != 0; });
  auto boot = Bootstrap::connect(b->id, kRanks, rank, Options::from_environment(), in_seconds(ready ? 60 : 0));
  boot->watch(
      [&](const Bootstrap::Trouble& t) {
        b->deaths[rank] |= 1u << t.rank;
        ++b->reports[rank];
      },
      [&](int origin, std::string_view text) {
        if (text.substr(0, text.find(' ')) != std::to_string(b->heard[rank][origin].load())) ++b->out_of_order;
        ++b->heard[rank][origin];
      });
  ++b->connected;
  while (!b->go) {
    for (; b->told[rank] < b->tell; ++b->told[rank])
      boot->tell(std::to_string(b->told[rank].load()) + std::string(static_cast<size_t>(b->padding), ' '));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  boot->close();
  _exit(0);
}

class Healing : public testing::Test {
 protected:
  void start() {
    void* p = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(p, MAP_FAILED);
    board = new (p) Board;
    for (int r = 0; r < kRanks; ++r) pids.push_back(start_rank(board, r));
    ASSERT_TRUE(eventually([&] { return board->connected == kRanks; }));
  }
  bool dead(int r) const { return killed.contains(r); }
  void kill_ranks(const std::set<int>& ranks) {
    for (const int r : ranks) kill(pids[static_cast<size_t>(r)], SIGKILL);
    for (const int r : ranks) waitpid(pids[static_cast<size_t>(r)], nullptr, 0);
    killed.insert(ranks.begin(), ranks.end());
  }
  // Every survivor has heard all that every other one told.
  bool all_heard() const {
    for (int r = 0; r < kRanks; ++r)
      for (int o = 0; o < kRanks; ++o)
        if (r != o && !dead(r) && !dead(o) && board->heard[r][o] < board->tell) return false;
    return true;
  }
  void expect_all_heard() {
    EXPECT_TRUE(eventually([&] { return all_heard(); }));
    for (int r = 0; r < kRanks; ++r)
      for (int o = 0; o < kRanks; ++o)
        if (r != o && !dead(r) && !dead(o)) {
          EXPECT_EQ(board->heard[r][o], board->tell) << r << " of " << o;
        }
    EXPECT_EQ(board->out_of_order, 0);
  }
  void expect_deaths_known() {
    uint32_t all = 0;
    for (const int r : killed) all |= 1u << r;
    for (int r = 0; r < kRanks; ++r) {
      if (dead(r)) continue;
      EXPECT_TRUE(eventually([&] { return board->deaths[r] == all; })) << r << " knows of " << board->deaths[r];
      EXPECT_EQ(board->reports[r], static_cast<int>(killed.size())) << r;
    }
  }
  void finish() {
    board->go = 1;
    for (int r = 0; r < kRanks; ++r)
      if (!dead(r)) {
        int status = -1;
        waitpid(pids[static_cast<size_t>(r)], &status, 0);
        EXPECT_EQ(status, 0) << r;
      }
    expect_deaths_known();
  }
  void run(const std::vector<std::set<int>>& rounds) {
    start();
    for (const std::set<int>& ranks : rounds) {
      board->tell += 300;
      std::this_thread::sleep_for(std::chrono::milliseconds(3));  // in the middle of it
      kill_ranks(ranks);
      expect_all_heard();
      expect_deaths_known();
      board->tell += 3;
      expect_all_heard();
    }
    finish();
  }

  Board* board = nullptr;
  std::vector<pid_t> pids;
  std::set<int> killed;
};

TEST_F(Healing, OneDies) {
  IN_NEW_PROCESS("");
  run({{3}});
}

TEST_F(Healing, NeighboursDieAtOnce) {
  IN_NEW_PROCESS("");
  run({{7, 0}, {3, 4, 5}});
}

TEST_F(Healing, SeveralDieApart) {
  IN_NEW_PROCESS("");
  run({{1, 3, 6}, {4}});
}

TEST_F(Healing, UntilOneIsLeft) {
  IN_NEW_PROCESS("");
  run({{0}, {2, 5}, {1, 3, 4}, {7}});
}

TEST_F(Healing, AStoppedRankIsLateNotDead) {
  IN_NEW_PROCESS("");
  start();
  kill(pids[2], SIGSTOP);
  board->tell += 2;
  kill_ranks({3});  // its neighbour: rank 4 sees it
  EXPECT_TRUE(eventually([&] { return board->deaths[1] == 8u && board->deaths[4] == 8u; }));
  EXPECT_EQ(board->deaths[0], 8u);
  kill(pids[2], SIGCONT);
  expect_all_heard();
  finish();
}

// The kernel gives up a connection whose other end has no room for so long. It is made again, and what was lost with it sent
// again: whatever is sent to a stopped process, for however long, it isn't dead.
TEST_F(Healing, AStoppedRankThatIsSentMoreThanItHasRoomForIsLateNotDead) {
  IN_NEW_PROCESS("");
  const Variable timeout("MUSTER_LINK_TIMEOUT", "5");
  start();
  kill(pids[5], SIGSTOP);
  board->padding = 500'000;
  board->tell += 6;  // some 20 MB
  std::this_thread::sleep_for(std::chrono::milliseconds(10500));
  EXPECT_EQ(board->reports[4], 0);
  EXPECT_EQ(board->reports[6], 0);
  kill(pids[5], SIGCONT);
  expect_all_heard();
  finish();
}

// Processes that tell something and end at once: those who would have passed it on may end, too.
TEST(LastWords, ComeToWhoStays) {
  constexpr int kStays = 3;
  for (int round = 0; round < 6; ++round) {
    void* const p = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(p, MAP_FAILED);
    Board* const b = new (p) Board;
    std::vector<pid_t> pids;
    for (int rank = 0; rank < kRanks; ++rank) {
      pids.push_back(fork());
      if (pids.back() != 0) continue;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (rank == 0) {
        b->id = make_unique_id();
        b->id_ready = 1;
      }
      eventually([&] { return b->id_ready.load() != 0; });
      auto boot = Bootstrap::connect(b->id, kRanks, rank, Options::from_environment(), in_seconds(60));
      boot->watch([&](const Bootstrap::Trouble&) { ++b->reports[rank]; }, [&](int origin, std::string_view) { ++b->heard[rank][origin]; });
      ++b->connected;
      if (rank == kStays) {
        eventually([&] {
          int all = 0;
          for (int o = 0; o < kRanks; ++o) all += b->heard[rank][o];
          return all == kRanks - 1;
        });
      } else {
        while (b->connected < kRanks) std::this_thread::yield();
        boot->tell("the last");
      }
      boot->close();
      _exit(0);
    }
    for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
    for (int o = 0; o < kRanks; ++o) EXPECT_EQ(b->heard[kStays][o], o == kStays ? 0 : 1) << "rank " << o << " in round " << round;
    EXPECT_EQ(b->reports[kStays], 0);
    munmap(p, sizeof(Board));
  }
}

TEST(HealingThreads, WhoLeavesIsNoDeathAndNoGap) {
  const int n = 10;
  std::vector<std::atomic<int>> heard(n);
  Ranks ranks = connect_all(n);
  for (int r = 0; r < n; ++r)
    ranks[static_cast<size_t>(r)]->watch([](const Bootstrap::Trouble& t) { ADD_FAILURE() << t.message; },
                                         [&heard, r](int, std::string_view) { ++heard[static_cast<size_t>(r)]; });
  std::set<int> here;
  for (int r = 0; r < n; ++r) here.insert(r);
  for (const std::set<int>& leaving : {std::set<int>{4}, {0, 9}, {2, 3, 6}, {1, 7}}) {
    std::vector<std::thread> threads;
    for (const int r : leaving) threads.emplace_back([&, r] {
        ranks[static_cast<size_t>(r)]->close();
        ranks[static_cast<size_t>(r)].reset();
      });
    for (const int r : leaving) here.erase(r);
    for (auto& t : threads) t.join();
    for (auto& h : heard) h = 0;
    for (const int r : here) ranks[static_cast<size_t>(r)]->tell("still here");
    for (const int r : here)
      EXPECT_TRUE(eventually([&] { return heard[static_cast<size_t>(r)] == static_cast<int>(here.size()) - 1; })) << r;
  }
  for (const int r : here) ranks[static_cast<size_t>(r)]->close();
}

TEST(HealingThreads, ManyDieAndNoConnectionsAreLeft) {
  const int n = 24;
  std::vector<std::atomic<int>> reports(n), heard(n);
  Ranks ranks = connect_all(n);
  const int before = open_fds();
  for (int r = 0; r < n; ++r)
    ranks[static_cast<size_t>(r)]->watch([&reports, r](const Bootstrap::Trouble&) { ++reports[static_cast<size_t>(r)]; },
                                         [&heard, r](int, std::string_view) { ++heard[static_cast<size_t>(r)]; });
  for (int r = 0; r < n; ++r)
    if (r % 6 != 5) ranks[static_cast<size_t>(r)].reset();
  for (const int r : {5, 11, 17, 23}) {
    EXPECT_TRUE(eventually([&] { return reports[static_cast<size_t>(r)] == 20; })) << reports[static_cast<size_t>(r)];
    ranks[static_cast<size_t>(r)]->tell("alive");
  }
  for (const int r : {5, 11, 17, 23}) EXPECT_TRUE(eventually([&] { return heard[static_cast<size_t>(r)] == 3; }));
  EXPECT_TRUE(eventually([&] { return open_fds() <= before - 2 * 20; })) << open_fds() << " of " << before;
  for (const int r : {5, 11, 17, 23}) ranks[static_cast<size_t>(r)]->close();
}

// What survivors of a cut say and hear, without connections to anything else.
void expect_unreachable(const std::vector<int>& host_of, int cut, bool by_cable) {
  const Variable timeout("MUSTER_LINK_TIMEOUT", "4");
  const Hosts hosts({.hosts = 3});
  hosts.run(host_of, [&](int rank) {
    const Options options = Options::from_environment();
    const Rendezvous r = rendezvous_from_environment(options, in_seconds(30));
    const auto boot = Bootstrap::connect(r.id, r.size, r.rank, options, in_seconds(30));
    std::mutex mutex;
    std::map<int, std::string> deaths;
    std::set<int> heard;
    boot->watch(
        [&](const Bootstrap::Trouble& t) {
          const std::lock_guard lock(mutex);
          deaths[t.rank] = t.message;
        },
        [&](int origin, std::string_view) {
          const std::lock_guard lock(mutex);
          heard.insert(origin);
        });
    boot->barrier(in_seconds(30));
    if (rank == 0) {
      if (by_cable)
        hosts.plug(cut, 0, false);
      else
        hosts.pass(cut, 0, false);
    }
    std::set<int> there, gone;
    for (size_t k = 0; k < host_of.size(); ++k)
      ((host_of[k] == cut) == (host_of[static_cast<size_t>(rank)] == cut) ? there : gone).insert(static_cast<int>(k));
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex);
      return deaths.size() == gone.size();
    }));
    boot->tell("still here");
    there.erase(rank);
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex);
      return heard == there;
    }));
    const std::lock_guard lock(mutex);
    for (const auto& [dead, message] : deaths) {
      EXPECT_TRUE(gone.contains(dead)) << dead;
      EXPECT_THAT(message, AllOf(HasSubstr(fmt::format("rank {} (host {}", dead, hosts.name(host_of[static_cast<size_t>(dead)]))),
                                 HasSubstr("can't be reached any more"),
                                 HasSubstr(hosts.address(host_of[static_cast<size_t>(dead)])), HasSubstr("MUSTER_LINK_TIMEOUT")));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until the others have seen as much
    boot->close();
  });
}

TEST(HealingHosts, WhoseCableIsPulledIsUnreachable) {
  NEED_HOSTS();
  expect_unreachable({0, 1, 2, 0}, 1, true);
}

TEST(HealingHosts, WhoseLinkSwallowsAllIsUnreachableWithAllItsRanks) {
  NEED_HOSTS();
  expect_unreachable({0, 1, 1, 2, 0}, 1, false);
}

}  // namespace
}  // namespace muster
