// Communicators of several hosts, which share no memory and are joined by a network: emulated on this machine by NCCL_HOSTID
// or NCCL_SHM_DISABLE. emulated_hosts_test moves every type and size over them; here is all that ranks must know of each
// other beside their messages.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "life_support.h"
#include "muster/muster.h"
#include "support/needs_network.h"
#include "support/outcome.h"
#include "support/processes.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using namespace test;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

using Hosts = std::vector<int>;  // by rank

void on_hosts(const Hosts& host_of, const std::function<void(Communicator&, int rank)>& fn, const ProcessExpectations& expected = {}) {
  run_processes(
      static_cast<int>(host_of.size()),
      [&](int rank) {
        const Variable host("NCCL_HOSTID", "host" + std::to_string(host_of[static_cast<size_t>(rank)]));
        Communicator c = Communicator::from_environment();
        fn(c, rank);
        c.destroy();
      },
      expected);
}

std::string name_of_rank(int r) { return fmt::format("rank {} \\(host [^)]*, pid [0-9]+\\)", r); }

class Spread : public testing::TestWithParam<Hosts> {};

// Calls of all kinds one behind the other, in groups and not.
TEST_P(Spread, CallsOfAllKinds) {
  NEED_NETWORK();
  on_hosts(GetParam(), [](Communicator& c, int rank) {
    const int n = c.size();
    expect_works(c);
    for (const size_t count : {size_t{1}, size_t{3000}, size_t{300'000}}) {
      std::vector<int> in(count), out(count), passed(count), sums(count);
      std::iota(in.begin(), in.end(), rank);
      const int to = (rank + 1) % n, from = (rank + n - 1) % n;
      group_start();
      c.send(in.data(), count, kInt, to);
      c.recv(out.data(), count, kInt, from);
      c.all_reduce(in.data(), sums.data(), count, kInt, RedOp::sum);
      group_end();
      group_start();
      c.send(out.data(), count, kInt, from);
      c.recv(passed.data(), count, kInt, to);
      group_end();
      EXPECT_EQ(passed, in);
      for (size_t i = 0; i < count; i += 997) {
        ASSERT_EQ(out[i], from + static_cast<int>(i));
        ASSERT_EQ(sums[i], n * static_cast<int>(i) + n * (n - 1) / 2);
      }
    }
    // Parts of different lengths, some empty.
    std::vector<size_t> counts;
    for (int r = 0; r < n; ++r) counts.push_back(static_cast<size_t>(r) * 5000);
    const std::vector<int> mine(counts[static_cast<size_t>(rank)], rank);
    std::vector<int> all(std::accumulate(counts.begin(), counts.end(), size_t{0}));
    c.all_gather_v(mine.data(), mine.size(), all.data(), counts, {}, kInt);
    for (size_t r = 0, at = 0; r < counts.size(); at += counts[r++]) {
      if (counts[r] == 0) continue;
      EXPECT_EQ(all[at], static_cast<int>(r));
      EXPECT_EQ(all[at + counts[r] - 1], static_cast<int>(r));
    }
    c.suspend();
    c.resume();
    expect_works(c, 7);
    c.finalize();
  });
}

// All ranks get the same bits, whatever rounds how.
TEST_P(Spread, EqualBits) {
  NEED_NETWORK();
  on_hosts(GetParam(), [](Communicator& c, int rank) {
    std::vector<float> in(50'021), out(in.size());
    for (size_t i = 0; i < in.size(); ++i) in[i] = 1.0f / static_cast<float>(3 + i * 7 + static_cast<size_t>(rank) * 1013);
    for (const size_t count : {size_t{5}, size_t{2000}, in.size()}) {
      c.all_reduce(in.data(), out.data(), count, DataType::float32, RedOp::sum);
      std::vector<float> all(count * static_cast<size_t>(c.size()));
      c.all_gather(out.data(), all.data(), count, DataType::float32);
      for (size_t r = 0; r < static_cast<size_t>(c.size()); ++r)
        EXPECT_TRUE(std::equal(out.begin(), out.begin() + static_cast<long>(count), all.begin() + static_cast<long>(r * count))) << "rank " << r;
    }
  });
}

// Children within a host, across hosts and of one rank; and children of those.
TEST_P(Spread, Split) {
  NEED_NETWORK();
  const Hosts hosts = GetParam();
  on_hosts(hosts, [&](Communicator& c, int rank) {
    const int n = c.size();
    Communicator within = c.split(hosts[static_cast<size_t>(rank)], 0), across = c.split(rank % 2, -rank), single = c.split(rank, 0);
    expect_works(within, 1);
    expect_works(across, 2);
    expect_works(single, 3);
    EXPECT_EQ(across.rank(), across.size() - 1 - rank / 2);
    Communicator none = c.split(rank == 0 ? Communicator::kNoColor : 0, 0);
    if (n > 1 && rank != 0) expect_works(none, 4);
    Communicator child = across.split(0, across.rank());
    expect_works(child, 5);
    for (Communicator* part : {&within, &across, &single, &child}) part->destroy();
    if (rank != 0) none.destroy();
    expect_works(c, 6);
  });
}

INSTANTIATE_TEST_SUITE_P(All, Spread,
                         testing::Values(Hosts{0, 1}, Hosts{0, 0, 1, 1}, Hosts{0, 0, 0, 1}, Hosts{0, 1, 0, 1}, Hosts{0, 0, 1, 1, 2}),
                         [](const auto& p) {
                           std::string name;
                           for (const int h : p.param) name += std::to_string(h);
                           return "Hosts" + name;
                         });

// Processes of one host that may share no memory are as good as several hosts.
TEST(SeveralHosts, WithoutSharedMemory) {
  NEED_NETWORK();
  const Variable none("NCCL_SHM_DISABLE", "1");
  run_process_ranks(3, [](Communicator& c, int) {
    expect_works(c);
    Communicator child = c.split(0, 0);
    expect_works(child);
    child.destroy();
  });
}

// --- calls that don't match ---

void expect_both_calls(const Outcome& o, const std::string& first, const std::string& second) {
  EXPECT_EQ(o.code, Result::invalid_usage) << o;
  EXPECT_THAT(o.text, AllOf(HasSubstr(first), HasSubstr(second)));
}

TEST(SeveralHosts, CallsThatDifferAreSpelledOut) {
  NEED_NETWORK();
  on_hosts({0, 0, 1, 1}, [](Communicator& c, int rank) {
    std::vector<float> x(5000), y(5000);
    c.all_reduce(x.data(), y.data(), 100, DataType::float32, RedOp::sum);
    const size_t count = rank == 3 ? 2000 : 3000;
    const Outcome o = outcome_of([&] { c.all_reduce(x.data(), y.data(), count, DataType::float32, RedOp::sum); });
    expect_both_calls(o, "all_reduce(count 3000, float32, sum) as call 2", "all_reduce(count 2000, float32, sum) as call 2");
    EXPECT_THAT(o.text, ContainsRegex(name_of_rank(3) + " called all_reduce\\(count 2000"));
    EXPECT_EQ(poll_until_error(c).text, o.text);
  });
}

// No message flows, so that only what ranks tell shows it.
TEST(SeveralHosts, SwappedRoots) {
  NEED_NETWORK();
  on_hosts({0, 1}, [](Communicator& c, int rank) {
    std::vector<float> x(5000), y(5000);
    const Outcome o = outcome_of([&] { c.broadcast(x.data(), y.data(), 5000, DataType::float32, 1 - rank); });
    expect_both_calls(o, "broadcast(count 5000, float32, root 0) as call 1", "broadcast(count 5000, float32, root 1) as call 1");
  });
}

// A split is a call like others.
TEST(SeveralHosts, SplitAgainstACollective) {
  NEED_NETWORK();
  on_hosts({0, 1}, [](Communicator& c, int rank) {
    float x = 1, y = 0;
    const Outcome o = outcome_of([&] {
      if (rank == 0)
        c.split(0, 0);
      else
        c.all_reduce(&x, &y, 1, DataType::float32, RedOp::sum);
    });
    expect_both_calls(o, "split", "all_reduce(count 1, float32, sum) as call 1");
  });
}

TEST(SeveralHosts, MessagesThatDiffer) {
  NEED_NETWORK();
  on_hosts({0, 1}, [](Communicator& c, int rank) {
    std::vector<float> x(5000);
    const Outcome o = outcome_of([&] {
      if (rank == 0) {
        c.send(x.data(), 30, DataType::float32, 1);
        c.barrier();
      } else {
        c.recv(x.data(), 40, DataType::float32, 0);
      }
    });
    expect_both_calls(o, "30 elements of float32", "40 elements of float32");
  });
}

// --- late and dead ranks ---

TEST(SeveralHosts, ALateRankIsNamed) {
  NEED_NETWORK();
  const Variable warn("MUSTER_STALL_WARN", "1");
  on_hosts({0, 0, 1, 1}, [](Communicator& c, int rank) {
    float x = 1, y = 0;
    c.all_reduce(&x, &y, 1, DataType::float32, RedOp::sum);
    if (rank == 3) {
      std::this_thread::sleep_for(2500ms);
      c.all_reduce(&x, &y, 1, DataType::float32, RedOp::sum);
      return;
    }
    testing::internal::CaptureStderr();
    c.all_reduce(&x, &y, 1, DataType::float32, RedOp::sum);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, ContainsRegex("has waited .* in call 2, .*waiting for " + name_of_rank(3) + ", last in call 1"));
    for (const int r : {0, 1, 2}) EXPECT_THAT(log, Not(ContainsRegex("waiting for .*" + name_of_rank(r))));
  });
}

TEST(SeveralHosts, AStoppedRankIsLate) {
  NEED_NETWORK();
  const Variable warn("MUSTER_STALL_WARN", "3");
  on_hosts({0, 1, 1}, [](Communicator& c, int rank) {
    float x = 1, y = 0;
    const std::vector<int> pids = gather(c, getpid());
    std::this_thread::sleep_for(300ms);  // all have come to the end of that call
    if (rank == 1) {
      kill(pids[2], SIGSTOP);
      std::thread([pid = pids[2]] {
        std::this_thread::sleep_for(4s);
        kill(pid, SIGCONT);
      }).detach();
    }
    testing::internal::CaptureStderr();
    for (int i = 0; i < 100; ++i) c.all_reduce(&x, &y, 1, DataType::float32, RedOp::sum);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(y, 3);
    if (rank == 2) return;
    EXPECT_THAT(log, ContainsRegex("has waited .* waiting for .*" + name_of_rank(2)));
  });
}

TEST(SeveralHosts, ATimeoutNamesWhoIsMissing) {
  NEED_NETWORK();
  const Variable limit("MUSTER_TIMEOUT", "0.5");
  on_hosts({0, 1}, [](Communicator& c, int rank) {
    float x = 1, y = 0;
    const Outcome o = rank == 1 ? poll_until_error(c) : outcome_of([&] { c.all_reduce(&x, &y, 1, DataType::float32, RedOp::sum); });
    EXPECT_EQ(o.code, Result::timeout) << o;
    EXPECT_THAT(o.text, ContainsRegex(name_of_rank(0) + " timed out after .* in call 1, all_reduce.* waiting for " + name_of_rank(1)));
  });
}

TEST(SeveralHosts, AKilledRankIsNamedAndTheOthersGoOn) {
  NEED_NETWORK();
  on_hosts(
      {0, 0, 1, 1, 2},
      [](Communicator& c, int rank) {
        expect_works(c);
        if (rank == 2) {
          std::this_thread::sleep_for(300ms);  // the others are to have come to the end of their calls
          kill(getpid(), SIGKILL);
        }
        std::vector<float> x(100'000), y(x.size());
        const Outcome o = outcome_of([&] {
          for (;;) c.all_reduce(x.data(), y.data(), x.size(), DataType::float32, RedOp::sum);
        });
        EXPECT_EQ(o.code, Result::remote_error) << o;
        EXPECT_THAT(o.text, ContainsRegex(name_of_rank(2)));
        const int excluded[] = {2};
        Communicator survivors = c.shrink(excluded, ShrinkMode::abort);
        expect_works(survivors);
        EXPECT_EQ(survivors.size(), 4);
        survivors.destroy();
      },
      {.killed = {2}});
}

// Who left is told of to those who wait for it.
TEST(SeveralHosts, ARankThatLeft) {
  NEED_NETWORK();
  on_hosts({0, 1, 1}, [](Communicator& c, int rank) {
    Communicator child = c.split(0, 0);
    expect_works(child);
    if (rank == 0) {
      child.destroy();
    } else {
      float x = 1, y = 0;
      const Outcome o = outcome_of([&] { child.all_reduce(&x, &y, 1, DataType::float32, RedOp::sum); });
      EXPECT_EQ(o.code, Result::remote_error) << o;
      EXPECT_THAT(o.text, ContainsRegex(name_of_rank(0) + " has destroyed its communicator"));
    }
    expect_works(c);
  });
}

TEST(SeveralHosts, AbortEndsCallsEverywhere) {
  NEED_NETWORK();
  on_hosts({0, 1, 1}, [](Communicator& c, int rank) {
    if (rank == 0) {
      std::this_thread::sleep_for(200ms);
      c.abort();
      return;
    }
    float x = 1, y = 0;
    const Outcome o = outcome_of([&] { c.all_reduce(&x, &y, 1, DataType::float32, RedOp::sum); });
    EXPECT_EQ(o.code, Result::remote_error) << o;
    EXPECT_THAT(o.text, ContainsRegex("aborted by " + name_of_rank(0)));
  });
}

// Revoked on one host it is revoked on all, and a split makes a new one of its ranks.
TEST(SeveralHosts, RevokeThenSplit) {
  NEED_NETWORK();
  on_hosts({0, 1, 1}, [](Communicator& c, int rank) {
    if (rank == 2)
      c.revoke();
    else
      poll_until_error(c);
    Communicator again = c.split(0, 0);
    expect_works(again);
    again.destroy();
  });
}

// --- what goes wrong while ranks meet ---

TEST(SeveralHosts, ANetworkThatThereIsNot) {
  NEED_NETWORK();
  const Variable network("NCCL_NET", "pigeons");
  run_processes(2, [](int rank) {
    const Variable host("NCCL_HOSTID", "host" + std::to_string(rank));
    const Outcome o = outcome_of([] { Communicator::from_environment(); });
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, HasSubstr("NCCL_NET='pigeons' names no network"));
  });
}

// --- windows ---

// Each puts to all, in any memory where the other is on another host; who waits for the signal sees the bytes.
TEST(SeveralHosts, PutsReachEveryHost) {
  NEED_NETWORK();
  on_hosts({0, 0, 1, 1, 2}, [](Communicator& c, int rank) {
    const int n = c.size();
    constexpr size_t kCount = 200'000;
    auto* memory = static_cast<int*>(mem_alloc(static_cast<size_t>(n) * kCount * sizeof(int)));
    Window w = c.register_window(memory, static_cast<size_t>(n) * kCount * sizeof(int));
    for (int round = 0; round < 3; ++round) {
      const std::vector<int> mine(kCount, rank * 10 + round);
      std::vector<SignalWait> waits;
      group_start();
      for (int to = 0; to < n; ++to) {
        c.put_signal(mine.data(), kCount * sizeof(int), to, w, static_cast<size_t>(rank) * kCount * sizeof(int), {round, 1});
        waits.push_back({to, 1, {round, 1}});
      }
      c.wait_signal(waits);
      group_end();
      for (int from = 0; from < n; ++from) {
        const int* const part = memory + static_cast<size_t>(from) * kCount;
        EXPECT_TRUE(std::all_of(part, part + kCount, [&](int x) { return x == from * 10 + round; })) << "from " << from;
      }
      c.barrier();
    }
    w = {};
    mem_free(memory);
  });
}

// Any memory will do for other hosts; processes of one host must be able to map it, or the remedy is said.
TEST(SeveralHosts, APutWithinAHostNeedsMemoryThatOthersMap) {
  NEED_NETWORK();
  for (const bool windows : {true, false}) {
    const Variable maps("MUSTER_WINDOWS", windows ? "1" : "0");
    on_hosts({0, 0, 1}, [&](Communicator& c, int rank) {
      std::vector<char> memory(100'000, '.');
      Window w = c.register_window(memory.data(), memory.size());
      if (rank == 0) {
        const std::vector<char> data(memory.size(), 'x');
        c.put_signal(data.data(), data.size(), 2, w, 0);
        const Outcome o = outcome_of([&] { c.put_signal(data.data(), data.size(), 1, w, 0); });
        EXPECT_EQ(o.code, Result::invalid_usage);
        EXPECT_THAT(o.text, HasSubstr(windows ? "mem_alloc (ncclMemAlloc)" : "MUSTER_WINDOWS=1"));
        c.signal(1);
      } else {
        const SignalWait one{0, 1, {}};
        c.wait_signal({&one, 1});
        EXPECT_EQ(memory.back(), rank == 2 ? 'x' : '.');
      }
      w = {};
      c.barrier();
    });
  }
}

// What connections to other hosts have used is counted, and their rings' part of it is given back by suspend.
TEST(SeveralHosts, MemoryOfConnectionsIsCountedAndGivenBack) {
  NEED_NETWORK();
  on_hosts({0, 1}, [](Communicator& c, int) {
    const auto resident = [] {
      size_t kilobytes = 0;
      std::ifstream in("/proc/self/smaps_rollup");  // to the page, unlike others
      for (std::string word; in >> word && word != "Rss:";) {
      }
      in >> kilobytes;
      return kilobytes << 10;
    };
    const MemoryUse before = c.memory_use();
    std::vector<char> data(4 << 20);
    c.all_reduce(data.data(), data.data(), data.size(), DataType::int8, RedOp::sum);
    const MemoryUse used = c.memory_use();
    EXPECT_GT(used.suspendable, before.suspendable + (256 << 10));
    EXPECT_LT(used.total, before.total + (64 << 20));
    EXPECT_EQ(used.total, used.persistent + used.suspendable);
    for (int i = 0; i < 3; ++i) c.all_reduce(data.data(), data.data(), data.size(), DataType::int8, RedOp::sum);
    const MemoryUse now = c.memory_use();
    EXPECT_LE(now.total, 2 * used.total);
    for (int round = 0; round < 2; ++round) {
      const size_t there = resident();
      c.suspend();
      const MemoryUse during = c.memory_use();
      EXPECT_EQ(during.suspendable, 0u);
      EXPECT_GE(during.suspended, used.suspendable / 2);
      EXPECT_GE(during.persistent, used.persistent);
      EXPECT_LE(resident() + during.suspended / 2, there) << during.suspended << " of " << now.suspendable;
      c.resume();
      EXPECT_EQ(c.memory_use().suspended, 0u);
      expect_works(c);
      c.all_reduce(data.data(), data.data(), data.size(), DataType::int8, RedOp::sum);
    }
  });
}

// The target is in no call, so nobody but its helper thread can take a put in; and signals alone are counted.
TEST(SeveralHosts, APutNeedsNoCallAtItsTarget) {
  NEED_NETWORK();
  on_hosts({0, 1}, [](Communicator& c, int rank) {
    std::vector<char> memory(3'000'000);  // of any kind: the other host can't map it anyway
    Window w = c.register_window(memory.data(), memory.size());
    if (rank == 0) {
      const std::vector<char> data(memory.size(), 'x');
      c.put_signal(data.data(), data.size(), 1, w, 0);
      for (int i = 0; i < 100; ++i) c.signal(1, {7, 0});
      float x = 1, y = 0;
      c.all_reduce(&x, &y, 1, DataType::float32, RedOp::sum);
    } else {
      volatile const char& last = memory.back();
      for (int i = 0; i < 500 && last != 'x'; ++i) std::this_thread::sleep_for(10ms);
      EXPECT_EQ(memory.back(), 'x');
      float x = 1, y = 0;
      c.all_reduce(&x, &y, 1, DataType::float32, RedOp::sum);
      const std::vector<SignalWait> waits{{0, 1, {}}, {0, 100, {7, 0}}};
      c.wait_signal(waits);
      EXPECT_EQ(std::count(memory.begin(), memory.end(), 'x'), static_cast<long>(memory.size()));
    }
    c.barrier();
  });
}

// A wait for a rank on another host that has left ends.
TEST(SeveralHosts, SignalsOfARankThatLeft) {
  NEED_NETWORK();
  on_hosts({0, 1}, [](Communicator& c, int rank) {
    Communicator child = c.split(0, 0);
    if (rank == 0) {
      child.signal(1);
      child.destroy();
    } else {
      const SignalWait one{0, 1, {}};
      child.wait_signal(std::span(&one, 1));
      const Outcome o = outcome_of([&] { child.wait_signal(std::span(&one, 1)); });
      EXPECT_EQ(o.code, Result::remote_error) << o;
      EXPECT_THAT(o.text, ContainsRegex(name_of_rank(0) + " has destroyed its communicator"));
    }
    c.barrier();
  });
}

}  // namespace
}  // namespace muster
