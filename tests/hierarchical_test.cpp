// Programs for ranks on several hosts, proved right for many placements; what they send between hosts; rings in other orders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "algorithms/algorithms.h"
#include "muster/types.h"
#include "program/checker.h"
#include "support/outcome.h"

namespace muster {
namespace {

using test::outcome_of;
using testing::HasSubstr;

// Hosts of so many ranks, one after the other.
Placement blocks(const std::vector<int>& sizes) {
  Placement p;
  for (size_t h = 0; h < sizes.size(); ++h) p.host_of.insert(p.host_of.end(), static_cast<size_t>(sizes[h]), static_cast<int>(h));
  return p;
}
int ranks_of(const Placement& p) { return static_cast<int>(p.host_of.size()); }

// The same ranks in random order.
Placement shuffled(Placement p, unsigned seed) {
  std::mt19937 random(seed);
  std::shuffle(p.host_of.begin(), p.host_of.end(), random);
  return placement_of(p.host_of);
}

std::vector<Placement> placements() {
  std::vector<Placement> all;
  for (int hosts = 1; hosts <= 6; ++hosts)
    for (int ranks = 1; ranks <= 5; ++ranks) all.push_back(blocks(std::vector<int>(static_cast<size_t>(hosts), ranks)));
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{
           {7, 8}, {8, 7}, {2, 2, 1}, {1, 3}, {3, 1}, {1, 1, 4}, {4, 1, 1}, {5, 1, 2}, {1, 5, 2}, {3, 3, 2, 2}, {2, 3, 4}, {4, 3, 2},
           {2, 5}, {5, 2}, {3, 5, 3, 5}, {1, 7}, {1, 2, 3, 4, 5}, {7, 7, 7, 6}, {8, 8, 8, 3}}) {
    all.push_back(blocks(sizes));
    all.push_back(shuffled(blocks(sizes), static_cast<unsigned>(all.size())));
  }
  all.push_back(placement_of(std::vector<int>{0, 1, 0, 1, 0, 1}));
  all.push_back(placement_of(std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
  all.push_back(placement_of(std::vector<int>{0, 1, 1, 0, 2, 1, 2}));
  return all;
}

std::vector<Program> all_ranks(const Algorithm& a, const Placement& p, int root = 0, int channels = 1) {
  std::vector<Program> programs;
  for (int r = 0; r < ranks_of(p); ++r) programs.push_back(make_program(a, {ranks_of(p), r, root, &p}, channels));
  return programs;
}

void expect_right(const Algorithm& a, const Placement& p, int root, int channels, const CheckOptions& options) {
  SCOPED_TRACE(testing::Message() << "hosts " << testing::PrintToString(p.host_of) << ", root " << root << ", " << channels << " channels, "
                                  << options.slots << " slots, " << options.tiles << " tiles" << (options.in_place ? ", in place" : ""));
  const auto programs = all_ranks(a, p, root, channels);
  const CheckResult result = check(programs, options);
  EXPECT_TRUE(result.ok) << result.message;
  for (const Program& one : programs) {
    EXPECT_EQ(one.algorithm, a.name);
    EXPECT_EQ(one.coll, a.coll);
  }
}

std::vector<int> roots(const Algorithm& a, int n) {
  if (!rooted(a.coll)) return {0};
  if (n > 10) return {0, n / 2, n - 1};
  std::vector<int> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<const Algorithm*> named(const std::set<std::string>& names) {
  std::vector<const Algorithm*> found;
  for (const Algorithm& a : algorithms())
    if (names.contains(a.name)) found.push_back(&a);
  return found;
}
std::string title(const testing::TestParamInfo<const Algorithm*>& p) { return std::string(name_of(p.param->coll)) + "_" + p.param->name; }

// --- right ---

class OnHosts : public testing::TestWithParam<const Algorithm*> {};

TEST_P(OnHosts, IsRightWhereverRanksAre) {
  for (const Placement& p : placements())
    for (const int root : roots(*GetParam(), ranks_of(p)))
      for (const bool in_place : {false, true}) {
        const int n = ranks_of(p);
        for (const int channels : {1, 2, 3, 4})
          for (const int slots : {2, 3})
            for (const int tiles : {1, 3})
              if (n <= 6 || (slots == 2 + (channels + root) % 2 && tiles == (channels % 2 ? 3 : 1) && (n <= 12 || channels != 3)))
                expect_right(*GetParam(), p, root, channels, {.slots = slots, .tiles = tiles, .in_place = in_place});
        if (HasFailure()) return;
      }
}

TEST_P(OnHosts, IsRightForChunksOfAnyLengths) {
  std::mt19937 random(5);
  for (const Placement& p : placements())
    for (int draw = 0; draw < 3; ++draw) {
      const int root = rooted(GetParam()->coll) ? static_cast<int>(random() % p.host_of.size()) : 0, channels = 1 + draw % 2;
      std::vector<int> lengths(all_ranks(*GetParam(), p, root)[0].chunks);
      for (int& l : lengths) l = random() % 3 == 0 ? 0 : static_cast<int>(random() % 4);
      expect_right(*GetParam(), p, root, channels, {.slots = 2, .tiles = 3, .in_place = draw == 2, .lengths = lengths});
      if (HasFailure()) return;
    }
}

TEST_P(OnHosts, IsRightForManyHostsAndForHostsOfManyRanks) {
  const std::vector<Placement> many = {blocks(std::vector<int>(32, 8)), shuffled(blocks(std::vector<int>(20, 5)), 3), blocks(std::vector<int>(100, 1)), blocks({70, 66}),
                                       blocks({1, 80})};
  for (const Placement& p : many) {
    expect_right(*GetParam(), p, rooted(GetParam()->coll) ? ranks_of(p) / 3 : 0, 1, {.slots = 2, .tiles = 1, .in_place = true});
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OnHosts, testing::ValuesIn(named({"hierarchical", "hierarchical_window", "tree"})), title);

// --- what goes between hosts ---

struct Traffic {
  double sent = 0;      // to other hosts, in chunks
  std::set<int> peers;  // there
};
Traffic between_hosts(const Program& p, const Placement& where) {
  Traffic t;
  for (const Step& s : p.channels[0].loops[0].steps)
    for (const Ref& d : s.destinations)
      if (d.kind == Ref::Kind::slot && where.host_of[static_cast<size_t>(d.peer)] != where.host_of[static_cast<size_t>(p.rank)]) {
        t.sent += s.pieces;
        t.peers.insert(d.peer);
      }
  return t;
}
std::vector<Traffic> traffic_of(Coll coll, const char* name, const Placement& p, int root = 0) {
  std::vector<Traffic> all;
  for (const Program& one : all_ranks(*find_algorithm(coll, name), p, root)) {
    all.push_back(between_hosts(one, p));
    if (splits_count(coll)) all.back().sent /= one.chunks;  // of the whole data
  }
  return all;
}
double sum_of(const std::vector<Traffic>& all) {
  return std::accumulate(all.begin(), all.end(), 0.0, [](double s, const Traffic& t) { return s + t.sent; });
}

// k hosts of g ranks. In units of the data (all_reduce, broadcast, reduce) or of a rank's chunk (the others).
TEST(BetweenHosts, GoesWhatTheoryAsksFor) {
  for (const int k : {2, 3, 4, 6})
    for (const int g : {2, 4, 5}) {
      const Placement p = blocks(std::vector<int>(static_cast<size_t>(k), g));
      SCOPED_TRACE(testing::Message() << k << " hosts of " << g);
      for (const Traffic& t : traffic_of(Coll::all_reduce, "hierarchical", p)) {
        EXPECT_NEAR(t.sent, 2.0 * (k - 1) / k / g, 1e-9);
        EXPECT_EQ(t.peers.size(), 1u) << "the next on the rail's ring";
      }
      for (const Coll c : {Coll::all_gather, Coll::reduce_scatter})
        for (const Traffic& t : traffic_of(c, "hierarchical", p)) EXPECT_NEAR(t.sent, k - 1, 1e-9) << name_of(c);
      for (const Traffic& t : traffic_of(Coll::all_to_all, "hierarchical", p)) {
        EXPECT_NEAR(t.sent, (k - 1) * g, 1e-9) << "no more than straight there";
        EXPECT_EQ(t.peers.size(), static_cast<size_t>(k - 1)) << "one rank of each other host";
      }
      for (const char* name : {"hierarchical", "tree"})
        for (const Coll c : {Coll::broadcast, Coll::reduce})
          for (const int root : {0, g + 1}) {
            const auto all = traffic_of(c, name, p, root);
            EXPECT_NEAR(sum_of(all), k - 1, 1e-9) << "each host but one gets, or gives, the data once";
            for (const Traffic& t : all) EXPECT_LE(t.sent, 1.0 / g + 1e-9) << "no rank sends more than its rail's share";
          }
      const auto tree = traffic_of(Coll::all_reduce, "tree", p);
      EXPECT_NEAR(sum_of(tree), 2.0 * (k - 1), 1e-9) << "up and down";
      for (const Traffic& t : tree) {
        EXPECT_LE(t.sent, 2.0 / g + 1e-9) << "at most what a single host would send each way";
        EXPECT_LE(t.peers.size(), 4u) << "two parents, and two children in one tree";
      }
    }
}

// With uneven hosts there are as many rails as the smallest host has ranks.
TEST(BetweenHosts, RailsAreThoseOfTheSmallestHost) {
  const Placement p = blocks({7, 8});
  const auto all = traffic_of(Coll::all_reduce, "hierarchical", p);
  for (size_t r = 0; r < 14; ++r) EXPECT_NEAR(all[r].sent, 1.0 / 7, 1e-9);
  EXPECT_EQ(all[14].sent, 0);
  // Every chunk crosses once, whoever's it is.
  EXPECT_NEAR(sum_of(traffic_of(Coll::all_gather, "hierarchical", p)), 15, 1e-9);
  EXPECT_NEAR(sum_of(traffic_of(Coll::reduce_scatter, "hierarchical", p)), 15, 1e-9);
  EXPECT_NEAR(sum_of(traffic_of(Coll::all_to_all, "hierarchical", p)), 2 * 7 * 8, 1e-9);
}

TEST(InsideHosts, ASeamIsOneStep) {
  const Placement p = blocks({2, 2});
  const Program one = make_program(*find_algorithm(Coll::all_reduce, "hierarchical"), {4, 0, 0, &p}, 1);
  std::vector<std::string> steps;
  for (const Step& s : one.channels[0].loops[0].steps) steps.push_back(to_string(s));
  EXPECT_THAT(steps, testing::ElementsAre("contribution(2) -> slot(1)", "contribution(0) + slot(1) -> output(0)",  // chunk 0 inside
                                          "contribution(3) -> slot(1)", "contribution(1) + slot(1) -> output(1), slot(2)",  // 1 inside, and off it goes
                                          "slot(2) + output(0) -> output(0), slot(2), complete", "slot(2) -> output(1), slot(1)",  // the rail
                                          "slot(1) -> output(3)", "output(0) -> slot(1)", "slot(1) -> output(2)"));
}

// --- the two trees ---

TEST(DoubleTree, NobodyButTheRootPassesOnInBothAndBothAreFlat) {
  const Algorithm& a = *find_algorithm(Coll::broadcast, "tree");
  for (int n = 1; n <= 130; ++n)
    for (const int root : {0, n / 2}) {
      std::vector<int> parent[2];
      std::vector<std::set<uint32_t>> interior(static_cast<size_t>(n));
      for (auto& tree : parent) tree.assign(static_cast<size_t>(n), -1);
      for (int r = 0; r < n; ++r) {
        const Program program = a.make({n, r, root});
        for (const Step& s : program.channels[0].loops[0].steps) {
          ASSERT_LE(s.destinations.size(), 3u) << "two children at most";
          if (s.destinations.size() > 1) interior[static_cast<size_t>(r)].insert(s.extent);
          if (s.sources[0].kind == Ref::Kind::slot) parent[s.extent][static_cast<size_t>(r)] = s.sources[0].peer;
        }
      }
      for (int r = 0; r < n; ++r) {
        if (r != root) {
          ASSERT_LE(interior[static_cast<size_t>(r)].size(), 1u) << n << " ranks, root " << root << ", rank " << r;
        }
        for (const auto& tree : parent) {
          int depth = 0;
          for (int up = r; tree[static_cast<size_t>(up)] >= 0; up = tree[static_cast<size_t>(up)]) ++depth;
          ASSERT_LE(depth, std::bit_width(static_cast<unsigned>(n - 1))) << n << " ranks, root " << root << ", rank " << r;
        }
      }
    }
}

// --- rings in other orders ---

Placement with_rings(int n, int rings, unsigned seed) {
  Placement p = blocks({n});
  std::mt19937 random(seed);
  for (int i = 0; i < rings; ++i) {
    std::vector<int> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    p.rings.push_back(order);
  }
  return p;
}

class AlongRings : public testing::TestWithParam<const Algorithm*> {};

TEST_P(AlongRings, IsRightInAnyOrder) {
  for (const int n : {1, 2, 3, 5, 8, 13})
    for (const int rings : {1, 2, 3})
      for (const int channels : {1, 2, 3, 4})
        for (const int root : roots(*GetParam(), n))
          for (const bool in_place : {false, true}) {
            expect_right(*GetParam(), with_rings(n, rings, static_cast<unsigned>(n + rings)), root, channels, {.slots = 2, .tiles = 2, .in_place = in_place});
            if (HasFailure()) return;
          }
}

TEST_P(AlongRings, TalksToItsNeighboursOfTheChannelsRingOnly) {
  const int n = 7, channels = 5;
  const Placement p = with_rings(n, 2, 11);
  for (int r = 0; r < n; ++r) {
    const Program program = make_program(*GetParam(), {n, r, 2, &p}, channels);
    ASSERT_EQ(program.channels.size(), static_cast<size_t>(channels));
    for (size_t c = 0; c < program.channels.size(); ++c) {
      const std::vector<int>& ring = p.rings[c % 2];
      const auto at = static_cast<size_t>(std::find(ring.begin(), ring.end(), r) - ring.begin());
      EXPECT_EQ(program.channels[c].part, c);
      for (const Step& s : program.channels[c].loops[0].steps) {
        for (const Ref& x : s.sources)
          if (x.kind == Ref::Kind::slot) {
            EXPECT_EQ(x.peer, ring[(at + 6) % 7]);
            EXPECT_EQ(x.lane, c);
          }
        for (const Ref& x : s.destinations)
          if (x.kind == Ref::Kind::slot) {
            EXPECT_EQ(x.peer, ring[(at + 1) % 7]);
          }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AlongRings, testing::ValuesIn(named({"ring", "chain"})), title);

TEST(AlongRings, AnOrderThatLacksARankIsRefused) {
  Placement p = blocks({3});
  p.rings = {{0, 1}};
  EXPECT_THAT(outcome_of([&] { find_algorithm(Coll::all_reduce, "ring")->make({3, 2, 0, &p}); }).text, HasSubstr("rank 2 is not in its place"));
}

// --- placements ---

TEST(Placement, NumbersHostsInTheOrderOfTheirFirstRank) {
  EXPECT_EQ(placement_of(std::vector<int>{7, 3, 7, 0, 3}).host_of, (std::vector<int>{0, 1, 0, 2, 1}));
  const Placement p = placement_of(std::vector<int>{7, 3, 7, 0, 3});
  const Hosts h(&p, 5, 4);
  EXPECT_EQ(h.ranks, (std::vector<std::vector<int>>{{0, 2}, {1, 4}, {3}}));
  EXPECT_EQ(h.host, 1);
  EXPECT_EQ(h.local, 1);
  EXPECT_EQ(h.rails, 1);
  EXPECT_EQ(h.most, 2);
  EXPECT_EQ(h.rank_at(1, 1), 4);
  EXPECT_EQ(h.rank_at(2, 1), -1);
}

TEST(Placement, SaysWhyHierarchyIsOfNoUse) {
  EXPECT_EQ(obstacle(blocks({2, 1})), "");
  EXPECT_THAT(obstacle(blocks({5})), HasSubstr("two hosts or more"));
  EXPECT_THAT(obstacle(blocks({1, 1, 1})), HasSubstr("each of 3 has one"));
  EXPECT_THAT(obstacle(Placement{}), HasSubstr("two hosts or more"));
}

// --- windows inside hosts ---

// What rank `rank` sends to ranks of other hosts, and receives of them: peer, lane, chunk, and whether it is sent; in order.
std::vector<std::tuple<int, int, uint32_t, bool>> messages_between_hosts(const char* name, const Placement& p, int rank, int channels) {
  std::vector<std::tuple<int, int, uint32_t, bool>> messages;
  const Program program = make_program(*find_algorithm(Coll::all_reduce, name), {ranks_of(p), rank, 0, &p}, channels);
  for (const Channel& c : program.channels)
    for (const Loop& l : c.loops)
      for (const Step& s : l.steps)
        for (const bool sent : {false, true})
          for (const Ref& r : sent ? s.destinations : s.sources)
            if (r.kind == Ref::Kind::slot && p.host_of[static_cast<size_t>(r.peer)] != p.host_of[static_cast<size_t>(rank)])
              messages.emplace_back(r.peer, r.lane, s.extent, sent);
  return messages;
}

// So each host may decide by itself how its ranks work together.
TEST(HierarchicalWindow, SendsBetweenHostsWhatHierarchicalDoes) {
  for (const Placement& p : placements())
    for (int rank = 0; rank < ranks_of(p); ++rank)
      for (const int channels : {1, 3})
        EXPECT_EQ(messages_between_hosts("hierarchical_window", p, rank, channels), messages_between_hosts("hierarchical", p, rank, channels))
            << testing::PrintToString(p.host_of) << ", rank " << rank;
}

TEST(Placement, OfOtherRanksIsRefused) {
  const Placement p = blocks({2, 2});
  for (const Algorithm* a : named({"hierarchical", "tree"}))
    EXPECT_THAT(outcome_of([&] { a->make({5, 0, 0, &p}); }).text, HasSubstr("a placement of 4 ranks for a program of 5"));
}

}  // namespace
}  // namespace muster
