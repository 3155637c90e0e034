// Communicators whose calls return at once: what async_error() says meanwhile, what may be called when, and
// how they end.
#include "life_support.h"

#include <unistd.h>

#include <atomic>
#include <optional>

namespace muster {
namespace {

using namespace test;
using testing::AnyOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

const Config kNonblocking{.blocking = false};

// Non-blocking communicators of n ranks, ready.
std::vector<Communicator> make(int n) {
  const UniqueId id = make_unique_id();
  std::vector<Communicator> all;
  for (int r = 0; r < n; ++r) all.push_back(Communicator::init(n, r, id, kNonblocking));
  for (Communicator& c : all) EXPECT_EQ(poll(c), Result::success);
  return all;
}

// One thread has all ranks and never waits in a call.
void expect_all_work(std::vector<Communicator>& all) {
  std::vector<int64_t> in(all.size()), out(all.size(), -1);
  for (size_t r = 0; r < all.size(); ++r) {
    in[r] = int64_t{1} << r;
    all[r].all_reduce(&in[r], &out[r], 1, kLong, RedOp::sum);
  }
  for (Communicator& c : all) ASSERT_EQ(poll(c), Result::success);
  EXPECT_THAT(out, testing::Each((int64_t{1} << all.size()) - 1));
}

TEST(Nonblocking, InitReturnsAtOnce) {
  const UniqueId id = make_unique_id();
  Communicator first = Communicator::init(2, 0, id, kNonblocking);
  EXPECT_FALSE(first.blocking());
  EXPECT_EQ(first.async_error(), Result::in_progress);
  EXPECT_EQ(first.rank(), 0);
  EXPECT_EQ(first.size(), 2);
  int x = 1, y = 0;
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { first.all_reduce(&x, &y, 1, kInt, RedOp::sum); }, [&] { first.send(&x, 1, kInt, 1); },
           [&] { first.split(0, 0); }, [&] { first.finalize(); }, [&] { first.barrier(); },
           [&] { first.suspend(); }, [&] { first.revoke(); }}) {
    const Outcome o = outcome_of(call);
    EXPECT_EQ(o.code, Result::invalid_argument) << o;
    EXPECT_THAT(o.text, HasSubstr("async_error() says success"));
  }
  Communicator second = Communicator::init(2, 1, id, kNonblocking);
  EXPECT_EQ(poll(first), Result::success);
  EXPECT_EQ(poll(second), Result::success);
  std::vector<Communicator> both;
  both.push_back(std::move(first));
  both.push_back(std::move(second));
  expect_all_work(both);
}

TEST(Nonblocking, EverythingFromOneThread) {
  std::vector<Communicator> all = make(3), children, shrunk;
  expect_all_work(all);
  for (size_t r = 0; r < 3; ++r) children.push_back(all[r].split(0, -static_cast<int>(r)));
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(poll(children[r]), Result::success);
    EXPECT_EQ(children[r].rank(), static_cast<int>(2 - r));
    EXPECT_FALSE(children[r].blocking());
  }
  expect_all_work(children);
  const int last = 2;
  for (size_t r = 0; r < 2; ++r) shrunk.push_back(all[r].shrink({&last, 1}));
  for (Communicator& c : shrunk) EXPECT_EQ(poll(c), Result::success);
  expect_all_work(shrunk);
  const UniqueId id = all[0].grow_id();
  std::vector<Communicator> grown;
  for (int r = 0; r < 4; ++r)
    grown.push_back(r < 3 ? all[static_cast<size_t>(r)].grow(4) : Communicator::join(4, r, id, kNonblocking));
  for (Communicator& c : grown) EXPECT_EQ(poll(c), Result::success);
  expect_all_work(grown);
  for (auto* set : {&children, &shrunk, &grown, &all}) {
    for (Communicator& c : *set) c.barrier();
    for (Communicator& c : *set) c.finalize();
    for (Communicator& c : *set) EXPECT_EQ(poll(c), Result::success);
    for (Communicator& c : *set) c.destroy();
  }
}

TEST(Nonblocking, CallsAreQueuedAndRunInOrder) {
  std::vector<Communicator> all = make(2);
  constexpr size_t n = 200'000;
  std::vector<int> a[2], b[2], c[2];
  for (size_t r = 0; r < 2; ++r) {
    a[r].assign(n, static_cast<int>(r) + 1);
    b[r].assign(n, -1);
    c[r].assign(n, -1);
  }
  for (size_t r = 0; r < 2; ++r) {
    all[r].all_reduce(a[r].data(), b[r].data(), n, kInt, RedOp::sum);
    if (r == 0) {
      EXPECT_EQ(all[r].async_error(), Result::in_progress) << "the other rank hasn't called yet";
    }
    all[r].all_reduce(b[r].data(), b[r].data(), n, kInt, RedOp::sum);
    group_start();
    all[r].send(b[r].data(), n, kInt, static_cast<int>(1 - r));
    all[r].recv(c[r].data(), n, kInt, static_cast<int>(1 - r));
    group_end();
  }
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(poll(all[r]), Result::success);
    EXPECT_THAT(b[r], testing::Each(6));
    EXPECT_THAT(c[r], testing::Each(6));
  }
}

// A group with one such communicator waits for none.
TEST(Nonblocking, GroupsDontWait) {
  std::vector<Communicator> quick = make(2);
  auto slow = Communicator::init_all(2);
  std::vector<int> in{1, 2}, out(2, -1), out2(2, -1);
  group_start();
  quick[0].all_reduce(&in[0], &out[0], 1, kInt, RedOp::sum);
  slow[0].all_reduce(&in[0], &out2[0], 1, kInt, RedOp::sum);
  group_end();
  EXPECT_EQ(quick[0].async_error(), Result::in_progress);
  EXPECT_EQ(slow[0].async_error(), Result::in_progress);
  group_start();
  slow[1].all_reduce(&in[1], &out2[1], 1, kInt, RedOp::sum);
  quick[1].all_reduce(&in[1], &out[1], 1, kInt, RedOp::sum);
  group_end();
  for (auto* all : {&quick, &slow})
    for (Communicator& c : *all) EXPECT_EQ(poll(c), Result::success);
  EXPECT_THAT(out, testing::Each(3));
  EXPECT_THAT(out2, testing::Each(3));
  // Making them in a group, too.
  const UniqueId id = make_unique_id();
  std::vector<Communicator> made(2), children(2);
  group_start();
  made[0] = Communicator::init(2, 0, id, kNonblocking);
  children[0] = quick[0].split(0, 0);
  group_end();
  EXPECT_EQ(made[0].async_error(), Result::in_progress);
  EXPECT_EQ(children[0].async_error(), Result::in_progress);
  EXPECT_EQ(quick[0].async_error(), Result::in_progress);
  made[1] = Communicator::init(2, 1, id, kNonblocking);
  children[1] = quick[1].split(0, 0);
  for (auto* all : {&made, &children})
    for (Communicator& c : *all) EXPECT_EQ(poll(c), Result::success);
  expect_all_work(made);
  expect_all_work(children);
}

TEST(Nonblocking, TheEnvironmentDecides) {
  {
    const Variable no("NCCL_COMM_BLOCKING", "0");
    const UniqueId id = make_unique_id();
    Communicator c = Communicator::init(2, 0, id);
    EXPECT_FALSE(c.blocking());
    EXPECT_EQ(c.async_error(), Result::in_progress);
    Communicator other = Communicator::init(2, 1, id, Config{.blocking = true});
    EXPECT_EQ(poll(c), Result::success);
    EXPECT_EQ(poll(other), Result::success);
  }
  const Variable yes("NCCL_COMM_BLOCKING", "1");
  Communicator c = Communicator::init(1, 0, make_unique_id(), kNonblocking);
  EXPECT_TRUE(c.blocking());
  EXPECT_EQ(c.async_error(), Result::success);
}

TEST(Nonblocking, ErrorsAreAskedFor) {
  std::optional<Variable> patience(std::in_place, "MUSTER_INIT_TIMEOUT", "0.3");
  Communicator lonely = Communicator::init(2, 0, make_unique_id(), kNonblocking),
               garbage = Communicator::init(2, 0, UniqueId{}, kNonblocking);
  std::string text;
  EXPECT_EQ(poll(lonely, &text), Result::timeout);
  EXPECT_THAT(text, HasSubstr("rank 1"));
  patience.reset();
  EXPECT_EQ(poll(garbage, &text), Result::invalid_argument);
  EXPECT_THAT(text, HasSubstr("all zeros"));
  int x = 0;
  EXPECT_EQ(outcome_of([&] { garbage.broadcast(&x, &x, 1, kInt, 0); }).text, text);
  EXPECT_EQ(outcome_of([&] { Communicator::init(2, 2, make_unique_id(), kNonblocking); }).code,
            Result::invalid_argument)
      << "checked at once";
  lonely.destroy();
  garbage.destroy();

  std::vector<Communicator> all = make(2);
  all[0].all_reduce(&x, &x, 1, kInt, RedOp::sum);
  all[1].broadcast(&x, &x, 1, kInt, 0);
  for (Communicator& c : all) {
    EXPECT_EQ(poll_until_error(c).code, Result::invalid_usage);
    EXPECT_THAT(poll_until_error(c).text, HasSubstr("calls don't match"));
    c.destroy();
  }
}

// --- the end, at any time ---

// The rank that aborts is free at once; the others learn who it was well before their own patience ends.
TEST(Abort, WhileRanksMeet) {
  const auto body = [](int rank, const UniqueId& id, int micros) {
    Communicator c = Communicator::init(3, rank, id, kNonblocking);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::microseconds(micros));
      c.abort();
      std::string text;
      EXPECT_EQ(poll(c, &text), Result::remote_error);
      EXPECT_THAT(text, HasSubstr("aborted"));
      c.destroy();
      return;
    }
    const Outcome o = poll_until_error(c);
    EXPECT_EQ(o.code, Result::remote_error) << o;
    EXPECT_THAT(o.text, HasSubstr("rank 1"));
    EXPECT_THAT(o.text, HasSubstr("abort"));
    c.destroy();
  };
  std::vector<int> moments = {4000, 8000, 20000};
  for (int micros = 0; micros < 2000; micros += 20) moments.push_back(micros);  // in any step of an introduction
  for (const int micros : moments) {
    const UniqueId id = make_unique_id();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) threads.emplace_back(body, rank, id, micros);
    for (auto& t : threads) t.join();
  }
  // Two of three have come: nothing but the abort ends it.
  const UniqueId id = make_unique_id();
  std::thread other(body, 0, id, 0);
  body(1, id, 50'000);
  other.join();
}

TEST(Abort, OfAChildThatIsBeingMade) {
  std::vector<Communicator> all = make(2);
  Communicator child = all[0].split(0, 0);
  child.abort();
  std::string text;
  EXPECT_EQ(poll(child, &text), Result::remote_error);
  EXPECT_THAT(text, HasSubstr("aborted"));
  Communicator other = all[1].split(0, 0);
  EXPECT_EQ(poll_until_error(other).code, Result::remote_error);
  expect_all_work(all);  // the parent isn't concerned
  // Aborting the parent ends it where the other rank never comes.
  Communicator never = all[0].split(0, 0);
  all[0].abort();
  EXPECT_EQ(poll(never, &text), Result::remote_error);
  EXPECT_EQ(poll_until_error(all[1]).code, Result::remote_error);
}

TEST(Destroy, WaitsForWhatIsUnderWay) {
  for (int i = 0; i < 10; ++i) {
    const UniqueId id = make_unique_id();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        Communicator c = Communicator::init(2, rank, id, kNonblocking);
        if (i % 2) {
          c.destroy();  // waits until it is made
          EXPECT_EQ(outcome_of([&] { c.destroy(); }).code, Result::invalid_argument);
          return;
        }
        EXPECT_EQ(poll(c), Result::success);
        std::vector<int> a(300'000, rank + 1), b(a.size(), -1);
        c.all_reduce(a.data(), b.data(), a.size(), kInt, RedOp::sum);
        c.destroy();
        EXPECT_THAT(b, testing::Each(3));
      });
    for (auto& t : threads) t.join();
  }
}

TEST(Destroy, NotInTheGroupThatMakesIt) {
  group_start();
  Communicator c = Communicator::init(1, 0, make_unique_id());
  const Outcome o = outcome_of([&] { c.destroy(); });
  EXPECT_EQ(o.code, Result::invalid_usage) << o;
  group_end();
  expect_works(c);
  c.destroy();
}

// Rank 1 never shrinks; nothing but the abort ends it.
TEST(Abort, OfAShrinkThatWaits) {
  std::vector<Communicator> all = make(3);
  const int last = 2;
  Communicator less = all[0].shrink({&last, 1}, ShrinkMode::abort);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(less.async_error(), Result::in_progress);
  less.abort();
  EXPECT_EQ(poll(less), Result::remote_error);
  less.destroy();
  all[0].destroy();
}

TEST(Abort, InTheGroupThatMakesIt) {
  for (const int n : {1, 2}) {
    group_start();
    Communicator c = Communicator::init(n, 0, make_unique_id());
    c.abort();
    EXPECT_EQ(c.async_error(), Result::remote_error);
    outcome_of([] { group_end(); });
    EXPECT_EQ(c.async_error(), Result::remote_error);
    c.destroy();
  }
}

// Handles that are thrown away while they are being made.
TEST(Destroy, DroppedHandles) {
  std::vector<Communicator> all = make(2);
  for (int i = 0; i < 20; ++i) {
    const UniqueId id = make_unique_id();
    for (int rank = 0; rank < 2; ++rank) {
      Communicator::init(2, rank, id, kNonblocking);
      all[static_cast<size_t>(rank)].split(0, 0);
    }
  }
  for (Communicator& c : all) EXPECT_EQ(poll(c), Result::success);
  expect_all_work(all);
}

// Idle communicators have no threads.
TEST(Nonblocking, NoThreadsWhenIdle) {
  std::vector<Communicator> all = make(2), children;
  for (int i = 0; i < 20; ++i)
    for (Communicator& c : all) children.push_back(c.split(0, 0));
  for (Communicator& c : children) EXPECT_EQ(poll(c), Result::success);
  int now = threads();
  for (int i = 0; i < 200 && now > 6; ++i) {  // ".", "..", this one, the helper thread
    std::this_thread::sleep_for(20ms);
    now = threads();
  }
  EXPECT_LE(now, 6);
}

// Four threads, each with a communicator of its own between two processes, that they split again and again.
TEST(Nonblocking, SplitsFromSeveralThreads) {
  run_process_ranks(2, [](Communicator& c, int) {
    for (const bool blocking : {false, true}) {
      std::vector<Communicator> parents;
      for (int t = 0; t < 4; ++t) parents.push_back(c.split(0, 0, Config{.blocking = blocking}));
      for (Communicator& p : parents) ASSERT_EQ(poll(p), Result::success);
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
          Communicator& mine = parents[static_cast<size_t>(t)];
          for (int i = 0; i < 50; ++i) {
            Communicator child = mine.split(0, 0);
            ASSERT_EQ(poll(child), Result::success);
            int x = t + 1, y = -1;
            child.all_reduce(&x, &y, 1, kInt, RedOp::sum);
            ASSERT_EQ(poll(child), Result::success);
            ASSERT_EQ(y, 2 * (t + 1));
          }
          int x = 1, y = -1;
          mine.all_reduce(&x, &y, 1, kInt, RedOp::sum);
          ASSERT_EQ(poll(mine), Result::success);
          ASSERT_EQ(y, 2);
        });
      for (auto& t : threads) t.join();
    }
  });
}

}  // namespace
}  // namespace muster
