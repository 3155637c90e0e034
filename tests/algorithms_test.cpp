// Every algorithm, proved right by the checker for every rank count that is small and some that are not.
#include "algorithms/algorithms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "muster/types.h"
#include "program/checker.h"

namespace muster {
namespace {

std::vector<Program> all_ranks(const Algorithm& a, int nranks, int root = 0, int channels = 1) {
  std::vector<Program> programs;
  for (int r = 0; r < nranks; ++r) programs.push_back(make_program(a, {nranks, r, root}, channels));
  return programs;
}

void expect_right(const Algorithm& a, int nranks, int root, int channels, const CheckOptions& options) {
  SCOPED_TRACE(testing::Message() << a.name << ' ' << name_of(a.coll) << ", " << nranks << " ranks, root "
                                  << root << ", " << channels << " channels, " << options.slots << " slots, "
                                  << options.tiles << " tiles" << (options.in_place ? ", in place" : ""));
  const auto programs = all_ranks(a, nranks, root, channels);
  const CheckResult result = check(programs, options);
  EXPECT_TRUE(result.ok) << result.message;
  if (a.rank_order) {
    EXPECT_TRUE(result.rank_order);
  }
  for (const Program& p : programs) {
    EXPECT_EQ(p.algorithm, a.name);
    EXPECT_EQ(p.coll, a.coll);
  }
}

std::vector<int> roots(const Algorithm& a, int nranks) {
  if (!rooted(a.coll)) return {0};
  if (nranks <= 8) {
    std::vector<int> all;
    for (int r = 0; r < nranks; ++r) all.push_back(r);
    return all;
  }
  return {0, nranks / 2 + 1, nranks - 1};
}

class EveryAlgorithm : public testing::TestWithParam<const Algorithm*> {};

TEST_P(EveryAlgorithm, IsRightForUpTo33Ranks) {
  const Algorithm& a = *GetParam();
  for (int n = 1; n <= 33; ++n) {
    for (const int root : roots(a, n)) {
      for (const bool in_place : {false, true}) {
        if (in_place && !a.in_place) continue;
        // All combinations where it is cheap; the extreme ones everywhere.
        for (const int slots : {2, 3})
          for (const int tiles : {1, 3})
            for (const int channels : {1, 2})
              if (n <= 9 || (slots == 2 && (tiles == 1) == (channels == 1)))
                expect_right(a, n, root, channels, {.slots = slots, .tiles = tiles, .in_place = in_place});
      }
      if (HasFailure()) return;
    }
  }
}

// Lengths of chunks in tiles: all, none, one rank's only, and at random with many empty ones.
std::vector<int> draw_lengths(uint32_t chunks, int tiles, int draw, std::mt19937& random) {
  std::vector<int> lengths(chunks, draw == 0 ? tiles : 0);
  if (draw == 2) lengths[random() % chunks] = tiles;
  if (draw > 2)
    for (int& l : lengths)
      l = random() % 3 == 0 ? 0 : static_cast<int>(random() % static_cast<unsigned>(tiles + 1));
  return lengths;
}

TEST_P(EveryAlgorithm, IsRightForChunksOfAnyLengths) {
  const Algorithm& a = *GetParam();
  std::mt19937 random(17);
  for (int n = 1; n <= 33; ++n)
    for (int draw = 0; draw < (n <= 9 ? 8 : 5); ++draw) {
      const int root = rooted(a.coll) ? static_cast<int>(random() % static_cast<unsigned>(n)) : 0;
      const int tiles = a.whole ? 1 : 3, channels = a.whole ? 1 : 1 + draw % 2;
      const uint32_t chunks = a.make({n, 0, root}).chunks;
      for (const bool in_place : {false, true})
        if (!in_place || a.in_place)
          expect_right(a, n, root, channels,
                       {.slots = 2,
                        .tiles = tiles,
                        .in_place = in_place,
                        .lengths = draw_lengths(chunks, tiles, draw, random)});
      if (HasFailure()) return;
    }
}

TEST_P(EveryAlgorithm, IsRightForManyRanks) {
  const Algorithm& a = *GetParam();
  for (const int n : {48, 64, 100, 127, 256, 512}) {
    if (a.windows && n > 256) continue;  // clocks of all ranks at all ranks: cubic
    const int root = rooted(a.coll) ? n / 3 : 0;
    expect_right(a, n, root, 1, {.slots = 2, .tiles = n <= 127 ? 2 : 1, .in_place = a.in_place});
    if (HasFailure()) return;
  }
}

// A rank that only ever receives before it sends, or sends before it receives a whole round, needs no second
// slot.
TEST_P(EveryAlgorithm, NeedsTwoSlotsAtMostAndOneIfDirect) {
  const Algorithm& a = *GetParam();
  const std::string name = a.name;
  if (name != "one_shot" && name != "pairwise" && !a.windows &&
      !(name == "direct" && a.coll != Coll::all_reduce))
    return;
  for (int n = 1; n <= 12; ++n) expect_right(a, n, 0, 1, {.slots = 1, .tiles = 3});
}

TEST_P(EveryAlgorithm, SaysWhetherItIsRightInPlace) {
  const Algorithm& a = *GetParam();
  EXPECT_EQ(check(all_ranks(a, 5), {.in_place = true}).ok, a.in_place);
}

TEST_P(EveryAlgorithm, IsInTheTableOnce) {
  const Algorithm& a = *GetParam();
  EXPECT_EQ(find_algorithm(a.coll, a.name), &a);
  EXPECT_GT(std::string(a.idea).size(), 10u);
}

std::vector<const Algorithm*> pointers() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& a : algorithms()) all.push_back(&a);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, EveryAlgorithm, testing::ValuesIn(pointers()), [](const auto& p) {
  return std::string(name_of(p.param->coll)) + "_" + p.param->name;
});

TEST(Algorithms, UnknownNamesAreNotFound) {
  EXPECT_EQ(find_algorithm(Coll::all_reduce, "star"), nullptr);
  EXPECT_EQ(find_algorithm(Coll::all_reduce, ""), nullptr);
  EXPECT_EQ(find_algorithm(Coll::send_recv, "direct"), nullptr);
}

TEST(Algorithms, EveryCollectiveHasOneThatWorksEverywhere) {
  for (int c = 0; c < kColls; ++c) {
    if (static_cast<Coll>(c) == Coll::send_recv || is_uneven(static_cast<Coll>(c))) continue;
    bool found = false;
    for (const Algorithm& a : algorithms())
      found = found || (static_cast<int>(a.coll) == c && !a.whole && !a.windows);
    EXPECT_TRUE(found) << name_of(static_cast<Coll>(c));
  }
}

// --- shape: as many steps and messages as the textbook says ---

struct Traffic {
  int messages = 0;  // sent by the rank
  double data = 0;   // sent by the rank, in units of the whole data
  int steps = 0;
};

Traffic traffic(const Program& p, double whole) {
  Traffic t;
  for (const Channel& c : p.channels)
    for (const Loop& l : c.loops)
      for (const Step& s : l.steps) {
        ++t.steps;
        for (const Ref& d : s.destinations)
          if (d.kind == Ref::Kind::slot && s.pieces > 0) {
            ++t.messages;
            t.data += s.pieces / whole;
          }
      }
  return t;
}

TEST(Algorithms, RingAllReduceSendsTwiceTheDataLessTwoShards) {
  for (int n : {2, 3, 8, 33}) {
    const Traffic t = traffic(find_algorithm(Coll::all_reduce, "ring")->make({n, n / 2, 0}), n);
    EXPECT_EQ(t.messages, 2 * (n - 1));
    EXPECT_NEAR(t.data, 2.0 * (n - 1) / n, 1e-9);
    EXPECT_EQ(t.steps, 2 * n - 1);  // the seam of reduce-scatter and all-gather is one step
  }
}

TEST(Algorithms, DirectAllReduceIsFusedAtTheSeam) {
  const Program p = find_algorithm(Coll::all_reduce, "direct")->make({3, 1, 0});
  const auto& steps = p.channels[0].loops[0].steps;
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_EQ(to_string(steps[2]),
            "slot(0) + contribution(1) + slot(2) -> output(1), slot(2), slot(0), complete");
}

TEST(Algorithms, LogarithmicOnesSendLogarithmicallyManyMessages) {
  for (int n : {2, 4, 16, 64}) {
    const int log = std::countr_zero(static_cast<unsigned>(n));
    EXPECT_EQ(traffic(find_algorithm(Coll::all_reduce, "halving_doubling")->make({n, 1, 0}), n).messages,
              2 * log);
    EXPECT_NEAR(traffic(find_algorithm(Coll::all_reduce, "halving_doubling")->make({n, 1, 0}), n).data,
                2.0 * (n - 1) / n, 1e-9);
    EXPECT_EQ(traffic(find_algorithm(Coll::all_reduce, "doubling")->make({n, 1, 0}), 1).messages, log);
  }
  for (int n : {3, 5, 6, 7, 12, 33, 100}) {
    const int log = std::bit_width(static_cast<unsigned>(n - 1));
    const Traffic gather = traffic(find_algorithm(Coll::all_gather, "bruck")->make({n, 1, 0}), 1);
    EXPECT_EQ(gather.messages, log);
    EXPECT_NEAR(gather.data, n - 1, 1e-9);
    const Traffic scatter = traffic(find_algorithm(Coll::reduce_scatter, "bruck")->make({n, 1, 0}), 1);
    EXPECT_LE(scatter.messages, log + 1);  // one message may lie in two places
    EXPECT_NEAR(scatter.data, n - 1, 1e-9);
    EXPECT_LE(traffic(find_algorithm(Coll::broadcast, "binomial")->make({n, 1, 1}), 1).messages, log);
  }
}

TEST(Algorithms, SendersDontAllStartAtTheSameRank) {
  for (const char* coll_name : {"reduce_scatter", "all_gather", "all_to_all"}) {
    for (const Algorithm& a : algorithms()) {
      if (name_of(a.coll) != std::string(coll_name) || a.windows) continue;
      std::vector<int> first_peers;
      const int n = 7;
      for (int r = 0; r < n; ++r) {
        const Program p = a.make({n, r, 0});
        [&] {
          for (const Step& s : p.channels[0].loops[0].steps)
            for (const Ref& d : s.destinations)
              if (d.kind == Ref::Kind::slot) return first_peers.push_back(d.peer);
        }();
      }
      EXPECT_THAT(first_peers, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6))
          << a.name << ' ' << coll_name;
    }
  }
}

// On a full mesh each pair of ranks has a link of its own, and as many channels as links use all of them at a
// time.
TEST(Algorithms, ChannelsBeginWithDifferentPeers) {
  const int n = 8;
  for (const auto& [coll, name] :
       {std::pair(Coll::all_reduce, "direct"), std::pair(Coll::reduce_scatter, "direct"),
        std::pair(Coll::all_to_all, "pairwise"), std::pair(Coll::reduce, "scatter_gather")}) {
    std::vector<Program> all;
    for (int r = 0; r < n; ++r) all.push_back(make_program(*find_algorithm(coll, name), {n, r, 0}, n - 1));
    for (const Program& p : all) {
      std::vector<int> first_peers;
      for (const Channel& c : p.channels) first_peers.push_back(c.loops[0].steps[0].destinations.back().peer);
      EXPECT_EQ(std::set<int>(first_peers.begin(), first_peers.end()).size(), first_peers.size()) << name;
    }
    // At any time one rank of each channel sends to each.
    for (size_t c = 0; c < n - 1; ++c) {
      std::set<int> targets;
      for (const Program& p : all) targets.insert(p.channels[c].loops[0].steps[0].destinations.back().peer);
      EXPECT_EQ(targets.size(), static_cast<size_t>(n)) << name;
    }
  }
}

TEST(Algorithms, SayWhetherAStepNamesAllRanks) {
  const int n = 8;
  const Placement pairs = placement_of(std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3});
  for (const Algorithm& a : algorithms()) {
    if (a.windows) continue;
    size_t most = 0;
    for (int r = 0; r < n; ++r) {
      const Program p = a.make({n, r, 0, &pairs});
      for (const Step& s : p.channels[0].loops[0].steps)
        for (const auto* refs : {&s.sources, &s.destinations}) {
          std::set<int> peers;
          for (const Ref& ref : *refs)
            if (ref.kind == Ref::Kind::slot) peers.insert(ref.peer);
          most = std::max(most, peers.size());
        }
    }
    EXPECT_EQ(most == n - 1, a.names_all) << a.name << ' ' << name_of(a.coll);
  }
}

// --- send/recv ---

CheckResult check_messages(const std::vector<std::vector<Message>>& messages, int slots = 2) {
  std::vector<Program> programs;
  const int n = static_cast<int>(messages.size());
  for (int r = 0; r < n; ++r) programs.push_back(send_recv(n, r, messages[static_cast<size_t>(r)]));
  return check(programs, {.slots = slots, .tiles = 3});
}

TEST(SendRecv, AnyOrderInAGroupCompletes) {
  const Message s0{true, 0}, s1{true, 1}, r0{false, 0}, r1{false, 1};
  for (const auto& theirs : std::vector<std::vector<Message>>{{s0, r0}, {r0, s0}}) {
    const CheckResult result = check_messages({{s1, r1}, theirs}, 1);
    EXPECT_TRUE(result.ok) << result.message;
  }
  // Many messages each way, opposite orders: more than the slots hold.
  const CheckResult result = check_messages({{s1, s1, s1, s1, r1, r1, r1}, {s0, s0, s0, r0, r0, r0, r0}}, 1);
  EXPECT_TRUE(result.ok) << result.message;
}

TEST(SendRecv, EveryPairInEveryOrder) {
  for (int n = 1; n <= 12; ++n) {
    std::vector<std::vector<Message>> messages(static_cast<size_t>(n));
    for (int r = 0; r < n; ++r)
      for (int i = 0; i < n; ++i) {
        const int peer = (i * 5 + r * 3) % n;
        for (int k = 0; k < 1 + (i % 2); ++k) {
          messages[static_cast<size_t>(r)].push_back({true, peer});
          messages[static_cast<size_t>(peer)].insert(
              messages[static_cast<size_t>(peer)].begin() +
                  (i % 3 == 0 ? 0 : static_cast<long>(messages[static_cast<size_t>(peer)].size())),
              {false, r});
        }
      }
    const CheckResult result = check_messages(messages);
    EXPECT_TRUE(result.ok) << n << " ranks: " << result.message;
  }
}

TEST(SendRecv, SelfMessagesArePairedInOrderAndCopied) {
  const std::vector<Message> m = {{true, 0}, {false, 0}, {false, 0}, {true, 0}};
  const Program p = send_recv(1, 0, m);
  ASSERT_EQ(p.channels.size(), 1u);
  ASSERT_EQ(p.channels[0].loops.size(), 2u);
  const Step &first = p.channels[0].loops[0].steps[0], &second = p.channels[0].loops[1].steps[0];
  EXPECT_EQ(first.sources[0], local(0, 0));
  EXPECT_EQ(first.destinations[0], local(1, 0));
  EXPECT_EQ(second.sources[0], local(3, 0));
  EXPECT_EQ(second.destinations[0], local(2, 0));
  EXPECT_EQ(p.channels[0].loops[1].message, 3);
  const CheckResult result = check_messages({m});
  EXPECT_TRUE(result.ok) << result.message;
}

TEST(SendRecv, NothingToDo) {
  EXPECT_TRUE(send_recv(3, 1, {}).channels.empty());
  const CheckResult result = check_messages({{}, {}});
  EXPECT_TRUE(result.ok) << result.message;
}

TEST(SendRecv, UnpairedSelfMessagesAndBadPeersAreErrors) {
  const std::vector<Message> unpaired = {{true, 1}, {false, 0}};
  try {
    send_recv(2, 1, unpaired);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::invalid_usage);
    EXPECT_THAT(e.what(), testing::HasSubstr("1 sends to itself and 0 receives"));
  }
  const std::vector<Message> nobody = {{false, 2}};
  try {
    send_recv(2, 1, nobody);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::invalid_argument);
    EXPECT_THAT(e.what(), testing::HasSubstr("receive from rank 2"));
  }
}

TEST(SendRecv, AMissingCounterpartIsADeadlockWithNames) {
  const CheckResult result = check_messages({{{false, 1}}, {}});
  EXPECT_FALSE(result.ok);
  EXPECT_THAT(result.message, testing::HasSubstr("rank 0, channel 0, loop 0, step 0"));
  EXPECT_THAT(result.message, testing::HasSubstr("rank 1 has ended"));
}

}  // namespace
}  // namespace muster
