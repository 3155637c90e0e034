// What happens when hosts, ranks or links between them fail: every survivor has an error that names the peer
// within the set time, nobody waits for ever, and the survivors can go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "muster/muster.h"
#include "sudden_death.h"
#include "support/hosts.h"
#include "support/needs_network.h"
#include "support/outcome.h"

namespace muster {
namespace {

using test::Hosts;
using test::is_rank_process;
using test::Outcome;
using test::outcome_of;
using test::ProcessExpectations;
using test::Variable;
using testing::AnyOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr DataType kFloat = DataType::float32;

// All-reduces of mixed sizes, each checked, until one fails.
Outcome until_error(Communicator& c, const std::function<void(int call)>& before = {}) {
  std::vector<float> a(400000), b(a.size());
  Outcome o;
  for (int i = 0; o.code == Result::success; ++i) {
    const size_t count = i % 5 == 0 ? a.size() : static_cast<size_t>(i % 5 * 150);
    for (size_t k = 0; k < count; ++k) a[k] = static_cast<float>(k % 11 + static_cast<size_t>(c.rank()));
    if (before) before(i);
    o = outcome_of([&] { c.all_reduce(a.data(), b.data(), count, kFloat, RedOp::sum); });
    if (o.code != Result::success) break;
    const auto n = static_cast<float>(c.size());
    for (size_t k = 0; k < count; ++k)
      if (b[k] != n * static_cast<float>(k % 11) + n * (n - 1) / 2) {
        ADD_FAILURE() << "call " << i << ", element " << k << ": " << b[k];
        break;
      }
  }
  return o;
}

void expect_sum(Communicator& c) {
  const float one = 1;
  float sum = 0;
  c.all_reduce(&one, &sum, 1, kFloat, RedOp::sum);
  EXPECT_EQ(sum, static_cast<float>(c.size()));
}

char state_of(int pid) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), line);
  const size_t name = line.rfind(')');
  return name == line.npos ? '?' : line[name + 2];
}

std::string rank_text(const Hosts& hosts, int rank, int host) {
  return "rank " + std::to_string(rank) + " (host " + hosts.name(host);
}

void expect_a_killed_rank_to_be_named() {
  const Hosts hosts({.hosts = 3});
  hosts.run({0, 0, 1, 1, 2},
            [&](int rank) {
              Communicator c = Communicator::from_environment();
              expect_sum(c);
              const Outcome o = until_error(c, [&](int call) {
                if (rank == 2 && call == 13) kill(getpid(), SIGKILL);
              });
              EXPECT_EQ(o.code, Result::remote_error) << o;
              EXPECT_THAT(o.text, HasSubstr(rank_text(hosts, 2, 1)));
              Communicator survivors = c.shrink(std::vector<int>{2}, ShrinkMode::abort);
              EXPECT_EQ(survivors.size(), 4);
              for (int i = 0; i < 20; ++i) expect_sum(survivors);
              survivors.destroy();
              c.destroy();
            },
            {{2}});
}

TEST(HostFailure, KilledRankIsNamedAndTheOthersGoOn) {
  NEED_HOSTS();
  expect_a_killed_rank_to_be_named();
}

TEST(HostFailure, KilledRankIsNamedAndTheOthersGoOnOverUcx) {
  NEED_HOSTS();
  OVER_UCX();
  expect_a_killed_rank_to_be_named();
}

TEST(HostFailure, KilledAtRandomTimes) {
  NEED_HOSTS();
  const Variable patience("MUSTER_INIT_TIMEOUT", "3");
  const Hosts hosts({.hosts = 2});
  for (int run = 0; run < 4; ++run) {
    const int victim = run % 3;
    hosts.run({0, 1, 1}, [&](int rank) { test::expect_to_survive(rank, victim, 200ms, [](Communicator& c) { return until_error(c); }); }, {{victim}});
  }
}

// What a rank had sent counts, though it is gone when it is read: who needs nothing more of it has the data, and everybody else an
// error that names it. Whoever came to the call too late is refused, so not all need have it.
TEST(HostFailure, ARankThatDiesBehindItsLastCall) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  const std::string have_it = testing::TempDir() + "muster_behind_its_last_call";  // a letter each
  if (!is_rank_process()) std::ofstream(have_it, std::ios::trunc);
  constexpr int kRuns = 6;
  for (int run = 0; run < kRuns; ++run)
    hosts.run({0, 0, 1},
              [&](int rank) {
                Communicator c = Communicator::from_environment();
                std::vector<float> data(6000);
                const auto from_two = [&](float value) {
                  data.assign(data.size(), rank == 2 ? value : 0);
                  const Outcome o = outcome_of([&] {
                    group_start();
                    for (const int to : {0, 1})
                      if (rank == 2) c.send(data.data(), data.size(), kFloat, to);
                    if (rank != 2) c.recv(data.data(), data.size(), kFloat, 2);
                    group_end();
                  });
                  if (o.code == Result::success)
                    EXPECT_EQ(data, std::vector<float>(data.size(), value));
                  else
                    EXPECT_THAT(o.text, HasSubstr(rank_text(hosts, 2, 1)));
                  return o.code == Result::success;
                };
                from_two(1);  // connects
                expect_sum(c);
                if (rank == 2) std::this_thread::sleep_for(30ms);  // for the others to be in their call
                const bool came = from_two(2);
                if (rank == 2 && run % 2) _exit(0);
                if (rank == 2) kill(getpid(), SIGKILL);
                if (came) std::ofstream(have_it, std::ios::app) << 'x';
                EXPECT_THAT(until_error(c).text, HasSubstr(rank_text(hosts, 2, 1)));
              },
              run % 2 ? ProcessExpectations{} : ProcessExpectations{{2}});
  std::string letters;
  std::getline(std::ifstream(have_it), letters);
  std::remove(have_it.c_str());
  EXPECT_GE(letters.size(), kRuns) << "of " << 2 * kRuns;
}

// A whole host is gone at once.
TEST(HostFailure, AHostsRanksDieTogether) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 3});
  hosts.run({0, 1, 1, 2},
            [&](int rank) {
              Communicator c = Communicator::from_environment();
              expect_sum(c);
              const Outcome o = until_error(c, [&](int call) {
                if ((rank == 1 || rank == 2) && call == 7) kill(getpid(), SIGKILL);
              });
              EXPECT_EQ(o.code, Result::remote_error) << o;
              EXPECT_THAT(o.text, HasSubstr("(host host1, pid "));
              Communicator survivors = c.shrink(std::vector<int>{1, 2}, ShrinkMode::abort);
              expect_sum(survivors);
              survivors.destroy();
              c.destroy();
            },
            {{1, 2}});
}

// The link goes down in the middle of calls, seen or unseen. MUSTER_TIMEOUT is the set time.
void expect_a_lost_link_to_be_named(const std::function<void(const Hosts&)>& lose) {
  const Variable time("MUSTER_TIMEOUT", "3"), link("MUSTER_LINK_TIMEOUT", "2");
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 0, 1}, [&](int rank) {
    Communicator c = Communicator::from_environment();
    expect_sum(c);
    const auto start = std::chrono::steady_clock::now();
    const Outcome o = until_error(c, [&](int call) {
      if (rank == 0 && call == 5) lose(hosts);
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, 40s);
    EXPECT_THAT(o.code, AnyOf(Result::remote_error, Result::timeout)) << o;
    if (rank == 2)
      EXPECT_THAT(o.text, AnyOf(HasSubstr("rank 0 (host host0"), HasSubstr("rank 1 (host host0"))) << o;
    else
      EXPECT_THAT(o.text, HasSubstr("rank 2 (host host1")) << o;
    // Who still reach each other go on.
    const std::vector<int> others = rank == 2 ? std::vector<int>{0, 1} : std::vector<int>{2};
    Communicator rest = c.shrink(others, ShrinkMode::abort);
    EXPECT_EQ(rest.size(), rank == 2 ? 1 : 2);
    expect_sum(rest);
    rest.destroy();
    c.abort();
  });
}

TEST(HostFailure, LinkDownInACall) {
  NEED_HOSTS();
  expect_a_lost_link_to_be_named([](const Hosts& hosts) { hosts.plug(1, 0, false); });
}

TEST(HostFailure, PeerIsSilentInACall) {
  NEED_HOSTS();
  expect_a_lost_link_to_be_named([](const Hosts& hosts) { hosts.pass(1, 0, false); });
}

TEST(HostFailure, LinkDownInACallOverUcx) {
  NEED_HOSTS();
  OVER_UCX();
  expect_a_lost_link_to_be_named([](const Hosts& hosts) { hosts.plug(1, 0, false); });
}

// A link that comes back in time is no failure: what was on its way arrives.
TEST(HostFailure, LinkThatComesBack) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 1}, [&](int rank) {
    Communicator c = Communicator::from_environment();
    std::vector<float> a(500000, 1), b(a.size());
    for (int i = 0; i < 12; ++i) {
      if (rank == 0 && i == 4) hosts.pass(1, 0, false);
      std::thread later;
      if (rank == 0 && i == 4)
        later = std::thread([&] {
          std::this_thread::sleep_for(300ms);
          hosts.pass(1, 0, true);
        });
      c.all_reduce(a.data(), b.data(), a.size(), kFloat, RedOp::sum);
      EXPECT_EQ(b, std::vector<float>(b.size(), 2)) << i;
      if (later.joinable()) later.join();
    }
    c.destroy();
  });
}

// A connection of which only one end is left: the peer died while nothing could be told.
TEST(HostFailure, HalfOpenConnection) {
  NEED_HOSTS();
  const Variable time("MUSTER_TIMEOUT", "3"), link("MUSTER_LINK_TIMEOUT", "2");
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 0, 1},
            [&](int rank) {
              Communicator c = Communicator::from_environment();
              expect_sum(c);
              if (rank == 2) {
                hosts.pass(1, 0, false);
                kill(getpid(), SIGKILL);
              }
              const Outcome o = until_error(c);
              EXPECT_THAT(o.code, AnyOf(Result::remote_error, Result::timeout)) << o;
              EXPECT_THAT(o.text, HasSubstr("rank 2 (host host1")) << o;
              c.abort();
            },
            {{2}});
}

TEST(HostFailure, PeerThatNeverComesIsATimeout) {
  NEED_HOSTS();
  const Variable time("MUSTER_TIMEOUT", "0.2");
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 1}, [&](int rank) {
    Communicator c = Communicator::from_environment();
    if (rank == 1) {
      std::this_thread::sleep_for(1s);
      c.abort();
      return;
    }
    const float x = 1;
    float y;
    const Outcome o = outcome_of([&] { c.all_reduce(&x, &y, 1, kFloat, RedOp::sum); });
    EXPECT_EQ(o.code, Result::timeout) << o;
    EXPECT_THAT(o.text, HasSubstr("rank 1 (host host1")) << o;
    c.abort();
  });
}

TEST(HostFailure, AbortEndsTheOthersCalls) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 0, 1, 1}, [&](int rank) {
    Communicator c = Communicator::from_environment();
    expect_sum(c);
    std::thread aborter;
    if (rank == 3)
      aborter = std::thread([&] {
        std::this_thread::sleep_for(100ms);
        c.abort();
      });
    const Outcome o = until_error(c);
    EXPECT_EQ(o.code, Result::remote_error) << o;
    EXPECT_THAT(o.text, HasSubstr("aborted by " + rank_text(hosts, 3, 1)));
    if (aborter.joinable()) aborter.join();
    c.destroy();
  });
}

// Ranks 2 and 3 are in two communicators, and calls of both are under way when rank 2 goes, or is stopped.
TEST(HostFailure, AbortOfTwoCommunicatorsInEitherOrder) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  for (const bool stopped : {false, true})
    for (const bool small_first : {false, true})
      hosts.run({0, 1, 0, 1}, [&](int rank) {
        Communicator world = Communicator::from_environment(), small = world.split(rank < 2 ? -1 : 0, 0);
        int pid = getpid();
        world.broadcast(&pid, &pid, 1, DataType::int32, 2);
        outcome_of([&] { world.barrier(); });  // behind which nobody is in the broadcast
        if (rank == 2) {
          if (!stopped) _exit(0);
          raise(SIGSTOP);
          return world.abort();
        }
        while (stopped && state_of(pid) != 'T') std::this_thread::sleep_for(1ms);
        const std::vector<float> a(300000, 1);
        std::vector<float> b(a.size()), d(a.size());
        HostStream one, other;
        outcome_of([&] { world.all_reduce(a.data(), b.data(), a.size(), kFloat, RedOp::sum, &one); });
        if (rank == 3) outcome_of([&] { small.all_reduce(a.data(), d.data(), a.size(), kFloat, RedOp::sum, &other); });
        std::this_thread::sleep_for(20ms);  // for both to be in their calls
        if (rank == 3 && small_first) small.abort();
        world.abort();
        if (rank == 3 && !small_first) small.abort();
        for (HostStream* s : {&one, &other}) outcome_of([&] { s->synchronize(); });
        if (stopped && rank == 0) kill(pid, SIGCONT);
      });
}

// Right behind an asynchronous call: destroy waits for it, abort ends it, and neither crashes.
TEST(HostFailure, LeavingRightBehindACall) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 0, 1, 1}, [&](int) {
    std::vector<float> a(4 << 20, 1), b(a.size());
    {
      HostStream stream;
      Communicator c = Communicator::from_environment();
      c.all_reduce(a.data(), b.data(), a.size(), kFloat, RedOp::sum, &stream);
      c.destroy();
      stream.synchronize();
      EXPECT_EQ(b, std::vector<float>(b.size(), 4));
    }
    HostStream stream;
    Communicator c = Communicator::from_environment();
    // Where another rank was faster, its abort has been heard of.
    outcome_of([&] { c.all_reduce(a.data(), b.data(), a.size(), kFloat, RedOp::sum, &stream); });
    c.abort();
    outcome_of([&] { stream.synchronize(); });
  });
}

// Calls that differ are explained across hosts as within one.
TEST(HostFailure, MismatchedCallsAreSpelledOut) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  hosts.run({0, 1, 1}, [&](int rank) {
    Communicator c = Communicator::from_environment();
    expect_sum(c);
    std::vector<float> a(2000, 1), b(a.size());
    const Outcome o =
        outcome_of([&] { c.all_reduce(a.data(), b.data(), rank == 0 ? 1000 : 1001, kFloat, RedOp::sum); });
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, testing::AllOf(HasSubstr("1000"), HasSubstr("1001"), HasSubstr("rank 0"))) << o;
    c.abort();
  });
}

}  // namespace
}  // namespace muster
