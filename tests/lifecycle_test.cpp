// The end of communicators, and what they cost: finalize, suspend and resume, memory, and cycles that leave
// nothing behind.
#include "life_support.h"

#include <sys/wait.h>
#include <unistd.h>

#include "comm/state.h"

namespace muster {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

TEST(Finalize, WaitsForAllAndEndsCalls) {
  on_threads_and_processes(3, [](Communicator& c, int rank) {
    HostStream stream;
    Communicator child = c.split(0, 0);
    std::vector<int> a(100'000, rank), b(a.size(), -1);
    child.all_reduce(a.data(), b.data(), a.size(), kInt, RedOp::sum, &stream);
    child.finalize();
    EXPECT_THAT(b, testing::Each(3)) << "queued calls come first";
    EXPECT_EQ(child.async_error(), Result::success);
    int x = 0;
    const Outcome later = outcome_of([&] { child.broadcast(&x, &x, 1, kInt, 0); });
    EXPECT_EQ(later.code, Result::invalid_usage) << later;
    EXPECT_THAT(later.text, HasSubstr("finalized"));
    EXPECT_EQ(outcome_of([&] { child.split(0, 0); }).code, Result::invalid_usage);
    EXPECT_EQ(outcome_of([&] { child.suspend(); }).code, Result::invalid_usage);
    const Outcome twice = outcome_of([&] { child.finalize(); });
    EXPECT_EQ(twice.code, Result::invalid_argument) << twice;
    EXPECT_EQ(child.rank(), rank);
    child.destroy();
    EXPECT_EQ(outcome_of([&] { child.destroy(); }).code, Result::invalid_argument);
    EXPECT_EQ(outcome_of([&] { child.finalize(); }).code, Result::invalid_argument);
    child.abort();
    expect_works(c);
  });
}

TEST(Finalize, OfSeveralInOneGroup) {
  auto all = Communicator::init_all(3);
  group_start();
  for (Communicator& c : all) c.finalize();
  group_end();
  for (Communicator& c : all) c.destroy();
}

TEST(Finalize, AgainstACallOrAGoneRank) {
  run_threads(2, [](Communicator& c, int rank) {
    Communicator mixed = c.split(0, 0), gone = c.split(0, 0);
    int x = 0;
    const Outcome o = outcome_of([&] {
      if (rank)
        mixed.finalize();
      else
        mixed.all_reduce(&x, &x, 1, kInt, RedOp::sum);
    });
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, AllOf(HasSubstr("calls don't match"), HasSubstr("finalize as call 1")));
    if (rank) {
      gone.destroy();
    } else {
      const Outcome alone = outcome_of([&] { gone.finalize(); });
      EXPECT_EQ(alone.code, Result::remote_error) << alone;
      EXPECT_THAT(alone.text, AllOf(HasSubstr("rank 1 (host "), HasSubstr("has destroyed its communicator")));
    }
    expect_works(c);
  });
}

TEST(Suspend, GivesMemoryBackAndTakesItAgain) {
  const Variable no_windows("MUSTER_WINDOWS", "0");
  on_threads_and_processes(3, [](Communicator& c, int rank) {
    Communicator child = c.split(0, 0);
    expect_works(child);
    expect_works(c);
    child.suspend();  // what it takes to agree on that is there from now on
    child.resume();
    const MemoryUse before = child.memory_use();
    EXPECT_GT(before.suspendable, size_t{1} << 20);
    EXPECT_EQ(before.suspended, 0u);
    EXPECT_EQ(before.total, before.persistent + before.suspendable);
    c.barrier();
    const size_t full = c.impl()->segment->resident_bytes();
    c.barrier();
    for (int i = 0; i < 3; ++i) {
      child.suspend();
      const MemoryUse during = child.memory_use();
      EXPECT_EQ(during.suspended, before.suspendable);
      EXPECT_EQ(during.suspendable, 0u);
      EXPECT_EQ(during.total, before.persistent);
      c.barrier();
      EXPECT_LE(c.impl()->segment->resident_bytes() + 3 * before.suspendable, full + (64 << 10));
      int x = 0;
      const Outcome o = outcome_of([&] { child.broadcast(&x, &x, 1, kInt, 0); });
      EXPECT_EQ(o.code, Result::invalid_usage) << o;
      EXPECT_THAT(o.text, HasSubstr("suspended"));
      EXPECT_EQ(outcome_of([&] { child.split(0, 0); }).code, Result::invalid_usage);
      EXPECT_EQ(outcome_of([&] { child.suspend(); }).code, Result::invalid_usage);
      EXPECT_EQ(child.async_error(), Result::success);
      expect_works(c, rank * 0);
      child.resume();
      expect_works(child, i);
      EXPECT_EQ(child.memory_use().total, before.total);
    }
    EXPECT_EQ(outcome_of([&] { child.resume(); }).code, Result::invalid_usage);
    child.suspend();
    child.destroy();
  });
}

// What MemoryUse promises, of the memory of all ranks together.
TEST(Memory, OfAnotherCommunicator) {
  for (const int n : {2, 3, 8})
    run_threads(n, [n](Communicator& c, int rank) {
      const auto resident = [&] {
        c.barrier();
        const size_t bytes = c.impl()->segment->resident_bytes();
        c.barrier();
        return bytes;
      };
      Communicator first = c.split(0, 0);  // the parent's boards
      const size_t before = resident();
      constexpr size_t kChildren = 20;
      std::vector<Communicator> all;
      for (size_t i = 0; i < kChildren; ++i) all.push_back(c.split(0, 0));
      EXPECT_LE(resident() - before, kChildren * (16 << 10)) << n << " ranks, unused";
      for (Communicator& x : all) {
        gather(x, rank);
        int in = 1, out = 0;
        x.all_reduce(&in, &out, 1, kInt, RedOp::sum);
        x.broadcast(&in, &out, 1, kInt, 0);
        EXPECT_EQ(out, 1);
      }
      EXPECT_LT(resident() - before, kChildren * (256 << 10)) << n << " ranks, small messages";
      size_t mine = 0;
      for (Communicator& x : all) mine += x.memory_use().total;
      EXPECT_GT(mine, 0u);
      all.clear();
      EXPECT_LE(resident(), before + (64 << 10)) << "all given back";
    });
}

struct Footprint {
  int descriptors = open_descriptors(), threads = test::threads(), mappings = test::mappings();
  long pages = resident_pages();
};

void cycle(Communicator& c, int i) {
  Communicator child =
      c.split(i % 5 == 4 && c.rank() == 0 ? Communicator::kNoColor : 0, i % 2 ? -c.rank() : c.rank());
  if (child) {
    int x = 1, y = -1;
    child.all_reduce(&x, &y, 1, kInt, RedOp::sum);
    ASSERT_EQ(y, child.size());
    if (i % 7 == 0) {
      std::vector<int> a(5000, 1), b(a.size());
      child.all_reduce(a.data(), b.data(), a.size(), kInt, RedOp::sum);
      ASSERT_EQ(b.back(), child.size());
    }
    if (i % 3 == 0) child.finalize();
    if (i % 3 != 1) child.destroy();  // or thrown away
  }
}

void expect_no_growth(Communicator& c, int cycles) {
  for (int i = 0; i < 60; ++i) cycle(c, i);
  c.barrier();
  const Footprint before;
  const size_t shared = c.impl()->segment->resident_bytes();
  for (int i = 0; i < cycles; ++i) {
    cycle(c, i);
    if (testing::Test::HasFatalFailure()) return;
  }
  c.barrier();
  const Footprint after;
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_LE(after.mappings, before.mappings + 8);
  EXPECT_LE(after.pages, before.pages + 256) << "of 4 KiB";
  EXPECT_LE(c.impl()->segment->resident_bytes(), shared + (256 << 10));
  c.barrier();
}

TEST(Cycles, FiveHundredLeaveNothing) {
  run_process_ranks(2, [](Communicator& c, int) { expect_no_growth(c, 500); });
}
TEST(Cycles, LongTenThousandLeaveNothing) {
  run_process_ranks(2, [](Communicator& c, int) { expect_no_growth(c, 10'000); });
}
TEST(Cycles, LongTenThousandOfFourLeaveNothing) {
  run_process_ranks(4, [](Communicator& c, int) { expect_no_growth(c, 10'000); });
}

// A call of each kind with 8 KiB per rank, the largest that are small.
void small_calls(Communicator& c) {
  const int n = c.size(), me = c.rank();
  constexpr size_t kCount = 2048;
  std::vector<int> in(kCount * static_cast<size_t>(n), me + 1), out(in.size());
  c.all_reduce(in.data(), out.data(), kCount, kInt, RedOp::sum);
  ASSERT_EQ(out[kCount - 1], n * (n + 1) / 2);
  c.reduce_scatter(in.data(), out.data(), kCount, kInt, RedOp::sum);
  ASSERT_EQ(out[kCount - 1], n * (n + 1) / 2);
  c.all_gather(in.data(), out.data(), kCount, kInt);
  ASSERT_EQ(out.back(), n);
  c.all_to_all(in.data(), out.data(), kCount, kInt);
  ASSERT_EQ(out.back(), n);
  for (int root = 0; root < n; ++root) {
    c.broadcast(in.data(), out.data(), kCount, kInt, root);
    ASSERT_EQ(out[kCount - 1], root + 1);
    c.reduce(in.data(), out.data(), kCount, kInt, RedOp::sum, root);
    c.gather(in.data(), out.data(), kCount, kInt, root);
    c.scatter(in.data(), out.data(), kCount, kInt, root);
    ASSERT_EQ(out[kCount - 1], root + 1);
  }
  group_start();
  c.send(in.data(), kCount, kInt, (me + 1) % n);
  c.recv(out.data(), kCount, kInt, (me + n - 1) % n);
  group_end();
  ASSERT_EQ(out[kCount - 1], (me + n - 1) % n + 1);
}

// Live at once, of the same ranks: no descriptors, no threads, little memory, and each works. With two ranks also when
// each is used for everything but long messages.
void many_alive(Communicator& c, size_t n) {
  cycle(c, 0);
  c.barrier();
  const Footprint before;
  const size_t shared = c.impl()->segment->resident_bytes();
  std::vector<Communicator> all;
  for (size_t i = 0; i < n; ++i) all.push_back(c.split(0, 0));
  for (size_t round = 0; round < 2; ++round)
    for (size_t i = 0; i < n; ++i) {
      int x = static_cast<int>(i) + c.rank(), y = -1;
      all[i].all_reduce(&x, &y, 1, kInt, RedOp::sum);
      ASSERT_EQ(y, c.size() * static_cast<int>(i) + c.size() * (c.size() - 1) / 2);
      if (c.size() == 2) small_calls(all[i]);
    }
  c.barrier();
  const Footprint during;
  EXPECT_EQ(during.descriptors, before.descriptors);
  EXPECT_EQ(during.threads, before.threads);
  EXPECT_LT((during.pages - before.pages) * 4096 / static_cast<long>(n), 256 << 10);
  EXPECT_LT((c.impl()->segment->resident_bytes() - shared) / n, 256u << 10);
  c.barrier();
  all.clear();
  c.barrier();
  EXPECT_LE(c.impl()->segment->resident_bytes(), shared + (64 << 10));
  c.barrier();
}

TEST(Alive, OneHundred) {
  run_process_ranks(2, [](Communicator& c, int) { many_alive(c, 100); });
  run_process_ranks(3, [](Communicator& c, int) { many_alive(c, 100); });
}
TEST(Alive, LongOneThousand) {
  run_process_ranks(2, [](Communicator& c, int) { many_alive(c, 1000); });
  run_process_ranks(8, [](Communicator& c, int) { many_alive(c, 1000); });
}

// Splits that fail after their memory was given out.
TEST(Cycles, FailuresLeaveNothing) {
  run_process_ranks(2, [](Communicator& c, int rank) {
    Communicator first = c.split(0, 0);
    const auto fails = [&](int i) {
      const Outcome o = outcome_of([&] { c.split(i % 2 ? -3 : 0, 0, Config{.max_channels = 1 + rank}); });
      EXPECT_EQ(o.code, i % 2 ? Result::invalid_argument : Result::invalid_usage) << o;
    };
    for (int i = 0; i < 20; ++i) fails(i);
    c.barrier();
    const Footprint before;
    const size_t shared = c.impl()->segment->resident_bytes();
    for (int i = 0; i < 200; ++i) fails(i);
    c.barrier();
    const Footprint after;
    EXPECT_EQ(after.descriptors, before.descriptors);
    EXPECT_LE(after.mappings, before.mappings + 4);
    EXPECT_LE(c.impl()->segment->resident_bytes(), shared + (64 << 10));
    c.barrier();
    expect_works(first);
  });
}

// A forked child has no part in its parent's children.
TEST(Fork, ChildrenOfCommunicatorsAreTheParents) {
  run_process_ranks(2, [](Communicator& c, int rank) {
    Communicator child = c.split(0, 0);
    expect_works(child);
    const pid_t pid = fork();
    if (pid == 0) {
      bool ok = outcome_of([&] { child.split(0, 0); }).code == Result::invalid_usage;
      ok = ok && outcome_of([&] { child.finalize(); }).code == Result::invalid_usage;
      child.abort();
      { const Communicator gone = std::move(child); }
      _exit(ok ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
    expect_works(child, rank * 0);
    expect_works(c);
  });
}

}  // namespace
}  // namespace muster
