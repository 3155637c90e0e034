// Max-min fair shares, against values that follow from the definition, and event queues.
#include "plan/fair_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "plan/event_queue.h"

namespace muster {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using Routes = std::vector<std::vector<uint32_t>>;
constexpr double kAny = std::numeric_limits<double>::infinity();

// By flows, which go or don't.
class Shares : public FairShares {
 public:
  Shares(const std::vector<double>& capacities, const Routes& routes)
      : FairShares(capacities, routes), going_(routes.size()) {}
  void start(uint32_t flow, double most) {
    FairShares::start(flow, most);
    going_[flow] = true;
  }
  void stop(uint32_t flow) {
    FairShares::stop(flow);
    going_[flow] = false;
  }
  bool going(uint32_t flow) const { return going_[flow]; }
  double rate(uint32_t flow) const { return going_[flow] ? FairShares::rate(group_of(flow)) : 0; }

 private:
  std::vector<bool> going_;
};

std::vector<double> rates(const Shares& s, size_t flows) {
  std::vector<double> all;
  for (uint32_t f = 0; f < flows; ++f) all.push_back(s.rate(f));
  return all;
}
void settle(Shares& s) {
  s.update([](uint32_t) {});
}

TEST(FairShares, OneFlowHasItsNarrowestLink) {
  const std::vector<double> capacities{10, 4, 7};
  Shares s(capacities, Routes{{0, 1, 2}});
  s.start(0, kAny);
  settle(s);
  EXPECT_EQ(s.rate(0), 4);
  s.stop(0);
  EXPECT_EQ(s.rate(0), 0);
  s.start(0, 3);
  settle(s);
  EXPECT_EQ(s.rate(0), 3) << "no more than it may have";
}

TEST(FairShares, FlowsOfOneLinkShareIt) {
  Shares s(std::vector<double>{12}, Routes{{0}, {0}, {0}});
  for (uint32_t f = 0; f < 3; ++f) s.start(f, kAny);
  settle(s);
  EXPECT_THAT(rates(s, 3), ElementsAre(4, 4, 4));
  s.stop(1);
  settle(s);
  EXPECT_THAT(rates(s, 3), ElementsAre(6, 0, 6));
}

// Flow 0 over both links, one more on each: 0 and 2 share the narrow link, 1 has what is left of the wide
// one.
TEST(FairShares, ThreeFlowsOnTwoLinks) {
  Shares s(std::vector<double>{10, 4}, Routes{{0, 1}, {0}, {1}});
  for (uint32_t f = 0; f < 3; ++f) s.start(f, kAny);
  settle(s);
  EXPECT_THAT(rates(s, 3), ElementsAre(DoubleNear(2, 1e-12), DoubleNear(8, 1e-12), DoubleNear(2, 1e-12)));
}

TEST(FairShares, WhatOneMayNotHaveIsFreeForOthers) {
  Shares s(std::vector<double>{12}, Routes{{0}, {0}, {0}});
  s.start(0, 1);
  s.start(1, 5);
  s.start(2, kAny);
  settle(s);
  EXPECT_THAT(rates(s, 3), ElementsAre(1, 5, 6));
}

TEST(FairShares, FlowsOfOneRouteAndMostAreAGroup) {
  Shares s(std::vector<double>{12}, Routes{{0}, {0}, {0}});
  s.start(0, 2);
  s.start(1, kAny);
  s.start(2, kAny);
  EXPECT_EQ(s.group_of(1), s.group_of(2));
  EXPECT_NE(s.group_of(0), s.group_of(1));
  settle(s);
  EXPECT_THAT(rates(s, 3), ElementsAre(2, 5, 5));
  s.stop(1);
  settle(s);
  EXPECT_THAT(rates(s, 3), ElementsAre(2, 0, 10));
}

TEST(FairShares, OnlyGroupsWhoseRateChangesAreNamed) {
  Shares s(std::vector<double>{12, 8}, Routes{{0}, {0}, {1}, {1}});
  for (uint32_t f = 0; f < 4; ++f) s.start(f, kAny);
  settle(s);
  s.stop(0);
  std::vector<uint32_t> changed;
  s.update([&](uint32_t g) { changed.push_back(g); });
  EXPECT_THAT(changed, ElementsAre(s.group_of(1)));
  EXPECT_EQ(s.rate(1), 12);
}

// The definition, for any routes: every flow has its most, or goes over a resource that is used up and where
// none has more.
TEST(FairShares, EveryFlowIsHeldUpSomewhere) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    std::vector<double> capacities(1 + below(8));
    for (double& c : capacities) c = 1 + below(20);
    Routes routes(1 + below(12));
    for (auto& r : routes)
      for (uint32_t i = 0; i < capacities.size(); ++i)
        if (below(3) == 0) r.push_back(i);
    Shares s(capacities, routes);
    std::vector<double> most(routes.size());
    for (int event = 0; event < 20; ++event) {
      const uint32_t f = below(static_cast<uint32_t>(routes.size()));
      if (s.going(f)) {
        s.stop(f);
      } else {
        most[f] = below(2) || routes[f].empty() ? 1 + below(10) : kAny;
        s.start(f, most[f]);
      }
      if (below(3) == 0) continue;  // several at a time
      settle(s);
      std::vector<double> used(capacities.size()), largest(capacities.size());
      for (uint32_t g = 0; g < routes.size(); ++g)
        for (const uint32_t r : routes[g]) {
          used[r] += s.rate(g);
          largest[r] = std::max(largest[r], s.rate(g));
        }
      for (size_t r = 0; r < capacities.size(); ++r) ASSERT_LE(used[r], capacities[r] * (1 + 1e-8));
      for (uint32_t g = 0; g < routes.size(); ++g) {
        if (!s.going(g)) continue;
        const bool held =
            s.rate(g) >= most[g] * (1 - 1e-8) ||
            std::any_of(routes[g].begin(), routes[g].end(), [&](uint32_t r) {
              return used[r] >= capacities[r] * (1 - 1e-8) && s.rate(g) >= largest[r] * (1 - 1e-8);
            });
        ASSERT_TRUE(held) << "flow " << g << " could have more than " << s.rate(g);
      }
    }
  }
}

TEST(EventQueue, ByTimeAndInTheOrderOfComing) {
  std::mt19937_64 random(3);
  EventQueue<int> q;
  std::vector<std::pair<uint64_t, int>> expected;
  std::vector<uint64_t> times;
  for (int i = 0; i < 2000; ++i)
    times.push_back(i % 3 == 0 ? random() >> (random() % 60 + 4) : static_cast<uint64_t>(i % 7));
  for (int i = 0; i < 2000; ++i) {
    q.add(times[static_cast<size_t>(i)], i);
    expected.emplace_back(times[static_cast<size_t>(i)], i);
  }
  std::stable_sort(expected.begin(), expected.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::pair<uint64_t, int>> found;
  while (!q.empty()) {
    q.advance();
    for (int what = 0; q.next(what);) found.emplace_back(q.now(), what);
  }
  EXPECT_EQ(found, expected);
}

TEST(EventQueue, EventsOfNowAndLaterMayBeAddedMeanwhile) {
  EventQueue<int> q;
  q.add(5, 1);
  std::vector<std::pair<uint64_t, int>> found;
  while (!q.empty()) {
    q.advance();
    for (int what = 0; q.next(what);) {
      found.emplace_back(q.now(), what);
      if (what == 1) {
        q.add(5, 2);
        q.add(1000, 4);
        q.add(6, 3);
      }
    }
  }
  EXPECT_THAT(found, ElementsAre(std::pair<uint64_t, int>(5, 1), std::pair<uint64_t, int>(5, 2),
                                 std::pair<uint64_t, int>(6, 3), std::pair<uint64_t, int>(1000, 4)));
}

}  // namespace
}  // namespace muster
