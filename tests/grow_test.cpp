// Communicators that take in new ranks, and that meet at several ids.
#include "life_support.h"

#include <unistd.h>

#include <cstring>

namespace muster {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;

TEST(Grow, NewRanksJoinThoseOfTheParent) {
  for (const int maker : {0, 2}) {
    auto parents = Communicator::init_all(3);
    const UniqueId id = parents[static_cast<size_t>(maker)].grow_id();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 5; ++rank)
      threads.emplace_back([&, rank] {
        Communicator grown =
            rank < 3 ? parents[static_cast<size_t>(rank)].grow(5) : Communicator::join(5, rank, id);
        EXPECT_EQ(grown.rank(), rank);
        EXPECT_EQ(gather(grown, rank), std::vector({0, 1, 2, 3, 4}));
        expect_works(grown);
        if (rank < 3) {
          expect_works(parents[static_cast<size_t>(rank)]);
          parents[static_cast<size_t>(rank)].destroy();
          expect_works(grown);
        } else {
          expect_works(grown);
        }
      });
    for (auto& t : threads) t.join();
  }
}

TEST(Grow, ByProcesses) {
  run_process_ranks(4, [](Communicator& c, int rank) {
    Communicator old = c.split(rank < 2 ? 0 : Communicator::kNoColor, -rank);  // 1, 0
    UniqueId id{};
    if (rank == 1) id = old.grow_id();
    c.broadcast(&id, &id, sizeof id, DataType::uint8, 1);
    Communicator grown =
        old ? old.grow(4, Config{.name = "grown"}) : Communicator::join(4, rank, id, Config{.name = "grown"});
    EXPECT_EQ(gather(grown, rank), std::vector({1, 0, 2, 3}));
    EXPECT_EQ(grown.name(), "grown");
    expect_works(grown);
    if (old) expect_works(old);
  });
}

TEST(Grow, InsideAGroupOfOneThread) {
  auto parents = Communicator::init_all(2);
  const UniqueId id = parents[1].grow_id();
  std::vector<Communicator> grown(3);
  group_start();
  for (size_t r = 0; r < 2; ++r) grown[r] = parents[r].grow(3);
  grown[2] = Communicator::join(3, 2, id);
  group_end();
  std::vector<int> in{1, 2, 4}, out(3, -1);
  group_start();
  for (size_t r = 0; r < 3; ++r) grown[r].all_reduce(&in[r], &out[r], 1, kInt, RedOp::sum);
  group_end();
  EXPECT_THAT(out, testing::Each(7));
}

TEST(Grow, MistakesAreNamedOnAllRanks) {
  run_threads(3, [](Communicator& c, int rank) {
    const auto failing = [&](int nranks, bool makes, Result code, const char* part) {
      if (makes) c.grow_id();
      const Outcome o = outcome_of([&] { c.grow(nranks); });
      EXPECT_EQ(o.code, code) << o;
      EXPECT_THAT(o.text, HasSubstr(part));
    };
    failing(4, false, Result::invalid_usage, "no rank made an id");
    failing(4, rank != 1, Result::invalid_usage, "both made an id");
    failing(3, rank == 0, Result::invalid_argument, "there must be more");
    failing(4 + rank, rank == 0, Result::invalid_usage, "the same number");
    if (rank == 0) {
      c.grow_id();
      const Outcome twice = outcome_of([&] { c.grow_id(); });
      EXPECT_EQ(twice.code, Result::invalid_usage);
      EXPECT_THAT(twice.text, HasSubstr("before"));
    }
    expect_works(c);
  });
}

TEST(Grow, ANewRankThatTakesAnOldNumberOrNeverComes) {
  const Variable patience("MUSTER_INIT_TIMEOUT", "0.4");
  auto parents = Communicator::init_all(2);
  for (const bool comes : {true, false}) {
    const UniqueId id = parents[0].grow_id();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < (comes ? 3 : 2); ++rank)
      threads.emplace_back([&, rank] {
        const Outcome o = outcome_of([&] {
          if (rank < 2)
            parents[static_cast<size_t>(rank)].grow(3);
          else
            Communicator::join(3, 1, id);
        });
        EXPECT_EQ(o.code, comes ? Result::invalid_argument : Result::timeout) << o;
        EXPECT_THAT(o.text, HasSubstr(comes ? "rank 1 was given twice" : "rank 2"));
      });
    for (auto& t : threads) t.join();
  }
}

// --- several ids ---

std::vector<UniqueId> make_ids(size_t n) {
  std::vector<UniqueId> ids;
  for (size_t i = 0; i < n; ++i) ids.push_back(make_unique_id());
  return ids;
}

// One outcome per rank of an init with ids(rank).
std::vector<Outcome> init_with(int n, const std::function<std::vector<UniqueId>(int)>& ids,
                               const std::function<void(Communicator&)>& then = {}) {
  std::vector<Outcome> outcomes(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      outcomes[static_cast<size_t>(rank)] = outcome_of([&] {
        Communicator c = Communicator::init(n, rank, std::span<const UniqueId>(ids(rank)));
        if (then) then(c);
      });
    });
  for (auto& t : threads) t.join();
  return outcomes;
}

TEST(ManyIds, OneToAsManyAsRanks) {
  for (const int n : {1, 2, 3, 7})
    for (int roots = 1; roots <= n; ++roots) {
      const auto ids = make_ids(static_cast<size_t>(roots));
      for (const Outcome& o : init_with(
               n, [&](int) { return ids; }, [](Communicator& c) { expect_works(c); }))
        EXPECT_EQ(o.code, Result::success) << n << " ranks, " << roots << " ids: " << o;
    }
}

TEST(ManyIds, MadeByDifferentProcesses) {
  run_process_ranks(5, [](Communicator& c, int rank) {
    const UniqueId mine = make_unique_id();
    std::vector<UniqueId> all(5);
    c.all_gather(&mine, all.data(), sizeof mine, DataType::uint8);
    const std::vector<UniqueId> ids{all[4], all[1], all[3]};
    Communicator many = Communicator::init(5, rank, std::span<const UniqueId>(ids));
    expect_works(many);
  });
}

TEST(ManyIds, MistakesAreRefused) {
  const Variable patience("MUSTER_INIT_TIMEOUT", "2");
  const auto ids = make_ids(3);
  const auto all_fail = [&](int n, const std::function<std::vector<UniqueId>(int)>& of, Result code,
                            const char* part) {
    for (const Outcome& o : init_with(n, of)) {
      EXPECT_EQ(o.code, code) << o;
      EXPECT_THAT(o.text, HasSubstr(part));
    }
  };
  all_fail(
      2, [&](int) { return ids; }, Result::invalid_argument, "3 unique ids for 2 ranks");
  all_fail(
      2, [&](int) { return std::vector<UniqueId>(); }, Result::invalid_argument, "0 unique ids");
  all_fail(
      3,
      [&](int) {
        return std::vector{ids[0], ids[1], ids[0]};
      },
      Result::invalid_argument, "unique ids 0 and 2 are the same");
  all_fail(
      3,
      [&](int) {
        return std::vector{ids[0], UniqueId{}};
      },
      Result::invalid_argument, "all zeros");
  // In another order on one rank.
  bool named = false;
  for (const Outcome& o : init_with(4, [ids = make_ids(2)](int rank) {
         return rank == 2 ? std::vector{ids[1], ids[0]} : ids;
       })) {
    EXPECT_NE(o.code, Result::success);
    named = named || o.text.find("same order") != std::string::npos;
  }
  EXPECT_TRUE(named);
  // A used one among them.
  for (const Outcome& o : init_with(2, [&](int) { return std::vector{ids[2]}; }))
    EXPECT_EQ(o.code, Result::success) << o;
  for (const Outcome& o : init_with(2, [&](int) { return std::vector{ids[2], ids[1]}; }))
    EXPECT_NE(o.code, Result::success);
}

TEST(ManyIds, AMissingRankIsNamedToAll) {
  const Variable patience("MUSTER_INIT_TIMEOUT", "0.5");
  const auto ids = make_ids(2);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 2, 4})  // of 5; id 1 serves 3 and 4
    threads.emplace_back([&, rank] {
      const Outcome o = outcome_of([&] { Communicator::init(5, rank, std::span<const UniqueId>(ids)); });
      EXPECT_NE(o.code, Result::success);
      EXPECT_THAT(o.text, HasSubstr("rank 3"));
    });
  for (auto& t : threads) t.join();
}

// A root whose ranks have more patience hears of it from the rank that came to both.
TEST(ManyIds, WhatOneRootGivesUpForIsSaidByTheOther) {
  const auto ids = make_ids(2);
  const auto init = [&](int rank, bool blocking) {
    return Communicator::init(5, rank, std::span<const UniqueId>(ids), {.blocking = blocking});
  };
  std::vector<Communicator> impatient;
  {
    const Variable patience("MUSTER_INIT_TIMEOUT", "1");
    for (const int rank : {1, 2}) impatient.push_back(init(rank, false));  // of 5; id 0 serves 0 to 2
  }
  const Variable patience("MUSTER_INIT_TIMEOUT", "100");
  std::vector<std::thread> threads;
  for (const int rank : {0, 4})
    threads.emplace_back([&, rank] {
      const Outcome o = outcome_of([&] { init(rank, true); });
      EXPECT_NE(o.code, Result::success);
      EXPECT_THAT(o.text, HasSubstr("rank 3 never came"));
    });
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace muster
