// Communicators made of others by split: who is in them, in what order, and that they are independent of each
// other.
#include "life_support.h"

#include <signal.h>
#include <unistd.h>

#include <random>

namespace muster {
namespace {

using namespace test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Split, ByColorInTheOrderOfKeys) {
  on_threads_and_processes(6, [](Communicator& c, int rank) {
    Communicator half = c.split(rank % 2, -rank);  // 4, 2, 0 and 5, 3, 1
    ASSERT_EQ(half.size(), 3);
    EXPECT_EQ(half.rank(), 2 - rank / 2);
    EXPECT_EQ(gather(half, rank), rank % 2 ? std::vector({5, 3, 1}) : std::vector({4, 2, 0}));
    expect_works(half, rank % 2);
    expect_works(c);
    half.destroy();
    expect_works(c);
  });
}

// Equal keys: by rank in the parent, whatever that was in the grandparent.
TEST(Split, EqualKeysKeepTheParentsOrder) {
  run_threads(5, [](Communicator& c, int rank) {
    Communicator reversed = c.split(0, 10 - rank);
    EXPECT_EQ(gather(reversed, rank), std::vector({4, 3, 2, 1, 0}));
    Communicator same = reversed.split(7, rank == 2 ? -1 : 3);
    EXPECT_EQ(gather(same, rank), std::vector({2, 4, 3, 1, 0}));
    expect_works(same);
  });
}

TEST(Split, NoColorTakesPartAndGetsNothing) {
  on_threads_and_processes(4, [](Communicator& c, int rank) {
    Communicator part = c.split(rank == 2 ? Communicator::kNoColor : 1, 0);
    EXPECT_EQ(static_cast<bool>(part), rank != 2);
    if (part) {
      EXPECT_EQ(gather(part, rank), std::vector({0, 1, 3}));
      expect_works(part);
    }
    Communicator none = c.split(Communicator::kNoColor, 5);
    EXPECT_FALSE(none);
    expect_works(c);
  });
}

TEST(Split, ColorsThatAreNegativeAreRefusedOnAllRanks) {
  run_threads(3, [](Communicator& c, int rank) {
    const Outcome o = outcome_of([&] { c.split(rank == 1 ? -2 : 0, 0); });
    EXPECT_EQ(o.code, Result::invalid_argument) << o;
    EXPECT_THAT(o.text, AllOf(HasSubstr("rank 1 (host "), HasSubstr("color -2")));
    expect_works(c);  // nothing has happened
    const Outcome config = outcome_of([&] { c.split(0, 0, Config{.min_channels = rank == 2 ? 17 : 0}); });
    EXPECT_EQ(config.code, Result::invalid_argument) << config;
    const Outcome differ = outcome_of([&] { c.split(0, 0, Config{.max_channels = 1 + rank}); });
    EXPECT_EQ(differ.code, Result::invalid_usage) << differ;
    EXPECT_THAT(differ.text, HasSubstr("max_channels"));
    expect_works(c);
  });
}

TEST(Split, OfAnother) {
  on_threads_and_processes(8, [](Communicator& c, int rank) {
    Communicator half = c.split(rank / 4, rank), quarter = half.split(half.rank() / 2, -half.rank()),
                 lone = quarter.split(quarter.rank(), 0);
    EXPECT_EQ(gather(quarter, rank), std::vector({rank / 2 * 2 + 1, rank / 2 * 2}));
    EXPECT_EQ(lone.size(), 1);
    // The parents go first.
    const int order = rank % 2;
    if (order) half.destroy();
    Communicator gone = std::move(c);
    gone.destroy();
    c = std::move(Communicator::init_all(1)[0]);  // what the caller destroys
    expect_works(quarter, rank / 2);
    expect_works(lone);
    Communicator again = quarter.split(0, 0);
    expect_works(again);
  });
}

TEST(Split, OfOneRank) {
  Communicator c = std::move(Communicator::init_all(1)[0]);
  Communicator same = c.split(3, 0), child = same.split(0, 9), none = c.split(Communicator::kNoColor, 0);
  EXPECT_FALSE(none);
  EXPECT_NE(same.name(), c.name());
  EXPECT_NE(same.name(), child.name());
  for (Communicator* x : {&c, &same, &child}) expect_works(*x);
  c.destroy();
  same.destroy();
  expect_works(child);
}

// One thread has all ranks: several splits of several communicators in one group, in call order for each.
TEST(Split, InsideGroups) {
  auto all = Communicator::init_all(4);
  std::vector<Communicator> halves(4), reversed(4), none(4);
  group_start();
  for (size_t r = 0; r < 4; ++r) {
    halves[r] = all[r].split(static_cast<int>(r) / 2, 0);
    reversed[r] = all[r].split(0, -static_cast<int>(r));
    none[r] = all[r].split(Communicator::kNoColor, 0);
    EXPECT_EQ(halves[r].async_error(), Result::in_progress);
    EXPECT_EQ(outcome_of([&] { (void)halves[r].rank(); }).code, Result::invalid_argument) << "not known yet";
  }
  group_end();
  std::vector<int> in(4), sum(4, -1), from_last(4, -1);
  for (size_t r = 0; r < 4; ++r) {
    in[r] = static_cast<int>(1 << r);
    EXPECT_EQ(halves[r].rank(), static_cast<int>(r % 2));
    EXPECT_EQ(reversed[r].rank(), static_cast<int>(3 - r));
    EXPECT_FALSE(none[r]);
  }
  group_start();
  for (size_t r = 0; r < 4; ++r) {
    halves[r].all_reduce(&in[r], &sum[r], 1, kInt, RedOp::sum);
    reversed[r].broadcast(&in[r], &from_last[r], 1, kInt, 0);
  }
  group_end();
  EXPECT_THAT(sum, ElementsAre(3, 3, 12, 12));
  EXPECT_THAT(from_last, testing::Each(8));
}

// A communicator from the environment of options that its ranks differ in is no different when it is made of
// another.
TEST(Split, ConfigIsTheParentsOrItsOwn) {
  const UniqueId id = make_unique_id();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      Communicator c = Communicator::init(2, rank, id, Config{.name = "train", .min_channels = 3});
      Communicator like = c.split(0, 0), named = c.split(0, 0, Config{.name = "data", .min_channels = 2});
      EXPECT_EQ(like.name(), "train.1");
      EXPECT_EQ(named.name(), "data");
      EXPECT_THAT(like.explain("all_reduce", 1 << 20, kInt), HasSubstr("3 channels"));
      EXPECT_THAT(named.explain("all_reduce", 1 << 20, kInt), HasSubstr("2 channels"));
      expect_works(like);
      expect_works(named);
    });
  for (auto& t : threads) t.join();
}

// Calls of parent and children in any order and at once keep apart, and none is slowed to a stop by another.
TEST(Split, ManyAtOnceFromThreads) {
  run_process_ranks(2, [](Communicator& c, int) {
    constexpr int kThreads = 4;
    std::vector<Communicator> parents;
    for (int t = 0; t < kThreads; ++t) parents.push_back(c.split(0, 0));
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        Communicator& mine = parents[static_cast<size_t>(t)];
        for (int i = 0; i < 25; ++i) {
          Communicator child = mine.split(0, i % 2 ? 1 - mine.rank() : mine.rank());
          const std::vector<int> seen = gather(child, 100 * t + mine.rank());
          EXPECT_EQ(seen,
                    (i % 2 ? std::vector({100 * t + 1 - 0, 100 * t}) : std::vector({100 * t, 100 * t + 1})));
          child.destroy();
        }
        expect_works(mine, t);
      });
    for (auto& t : threads) t.join();
    expect_works(c);
  });
}

TEST(Split, AgainstAnotherCallIsAMismatch) {
  on_threads_and_processes(3, [](Communicator& c, int rank) {
    expect_works(c);
    int x = 1, y = 0;
    const Outcome o = outcome_of([&] {
      if (rank == 1)
        c.all_reduce(&x, &y, 1, kInt, RedOp::sum);
      else
        c.split(0, 0);
    });
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, AllOf(HasSubstr("calls don't match"), HasSubstr("split as call 6"),
                              HasSubstr("all_reduce(count 1")));
  });
}

TEST(Split, ARankThatDoesNotComeIsNamed) {
  const Variable patience("MUSTER_INIT_TIMEOUT", "2");
  run_threads(3, [](Communicator& c, int rank) {
    if (rank == 1) {
      EXPECT_EQ(poll_until_error(c).code, Result::timeout);
      return;
    }
    const Outcome o = outcome_of([&] { c.split(0, 0); });
    EXPECT_EQ(o.code, Result::timeout) << o;
    EXPECT_THAT(o.text, AllOf(HasSubstr("rank 1 (host "), HasSubstr("did not call split"),
                              HasSubstr("MUSTER_INIT_TIMEOUT")));
  });
}

TEST(Split, AfterStreamsAndWithChildrenOnStreams) {
  run_threads(2, [](Communicator& c, int rank) {
    HostStream stream;
    std::vector<int> a(50'000, rank + 1), b(a.size());
    for (int i = 0; i < 5; ++i) c.all_reduce(a.data(), b.data(), a.size(), kInt, RedOp::sum, &stream);
    Communicator child = c.split(0, 0);  // waits for its turn
    child.all_reduce(a.data(), a.data(), a.size(), kInt, RedOp::max, &stream);
    stream.synchronize();
    EXPECT_THAT(b, testing::Each(3));
    EXPECT_THAT(a, testing::Each(2));
  });
}

// A death is told to every communicator that the rank was in, by its number there, and to no other.
TEST(Split, DeathsAreSeenInChildren) {
  run_processes(4,
                [](int rank) {
                  Communicator c = Communicator::from_environment();
                  Communicator with = c.split(rank == 0 ? Communicator::kNoColor : 0, -rank);  // 3, 2, 1
                  Communicator without = c.split(rank == 2 ? Communicator::kNoColor : 0, 0);
                  gather(c, rank);
                  if (rank == 2) raise(SIGKILL);
                  if (rank != 0) {
                    const Outcome idle = poll_until_error(with);
                    EXPECT_EQ(idle.code, Result::remote_error);
                    EXPECT_THAT(idle.text, HasSubstr("rank 1 (host "));
                    EXPECT_THAT(idle.text, HasSubstr("communicator " + with.name()));
                  }
                  EXPECT_EQ(poll_until_error(c).code, Result::remote_error);
                  expect_works(without);
                  without.destroy();
                },
                {{2}});
}

// The parent is gone everywhere: children still learn of deaths.
TEST(Split, DeathsAreSeenWhenTheParentIsGone) {
  run_processes(3,
                [](int rank) {
                  Communicator child;
                  {
                    Communicator c = Communicator::from_environment();
                    child = c.split(0, 2 - rank);
                    c.destroy();
                  }
                  gather(child, rank);
                  if (rank == 1) raise(SIGKILL);
                  const Outcome o = poll_until_error(child);
                  EXPECT_EQ(o.code, Result::remote_error);
                  EXPECT_THAT(o.text, HasSubstr("rank 1 (host "));
                },
                {{1}});
}

// An error of one communicator is that communicator's alone.
TEST(Split, ErrorsStayWithTheirCommunicator) {
  run_threads(3, [](Communicator& c, int rank) {
    Communicator a = c.split(0, 0), b = c.split(0, 0);
    gather(b, rank);
    if (rank == 0) a.abort();
    EXPECT_EQ(poll_until_error(a).code, Result::remote_error);
    expect_works(b);
    expect_works(c);
    c.abort();
    expect_works(b);
    Communicator child = b.split(0, 0);
    expect_works(child);
  });
}

TEST(Split, MembersMayGoInAnyOrder) {
  run_process_ranks(3, [](Communicator& c, int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<Communicator> all;
    for (int i = 0; i < 12; ++i) {
      Communicator& parent = i < 3 ? c : all[static_cast<size_t>(i) / 3];
      all.push_back(parent.split(0, i % 2 ? -rank : rank));
    }
    for (Communicator& x : all) expect_works(x);
    std::shuffle(all.begin(), all.end(), random);
    while (all.size() > 1) all.pop_back();
    expect_works(c);
  });
}

}  // namespace
}  // namespace muster
