// Which CPUs the ranks of a host get.
#include "topology/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "topology/cpu_set.h"

namespace muster::topology {
namespace {

using testing::ElementsAre;

std::vector<Numa> nodes(std::initializer_list<const char*> lists) {
  std::vector<Numa> r;
  for (const char* list : lists)
    r.push_back({.os_index = static_cast<int>(r.size()), .cpus = parse_cpu_list(list).value()});
  return r;
}
std::vector<int> cpus(const char* list) { return parse_cpu_list(list).value(); }

// The node that each rank's CPUs are in; -1: in several.
std::vector<int> node_of_ranks(const std::vector<Numa>& numas, const std::vector<std::vector<int>>& places) {
  std::vector<int> r;
  for (const std::vector<int>& place : places) {
    std::set<int> in;
    for (const Numa& n : numas)
      if (intersect(n.cpus, place)) in.insert(n.os_index);
    r.push_back(in.size() == 1 ? *in.begin() : -1);
  }
  return r;
}

TEST(Placement, RanksAreSpreadOverTheNodes) {
  const auto two = nodes({"0-7", "8-15"});
  EXPECT_THAT(node_of_ranks(two, place_ranks(two, cpus("0-15"), 4)), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(node_of_ranks(two, place_ranks(two, cpus("0-15"), 2)), ElementsAre(0, 1));
  const auto four = nodes({"0-3", "4-7", "8-11", "12-15"});
  EXPECT_THAT(node_of_ranks(four, place_ranks(four, cpus("0-15"), 4)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(node_of_ranks(four, place_ranks(four, cpus("0-15"), 6)), ElementsAre(0, 0, 1, 2, 2, 3));
  EXPECT_THAT(place_ranks(four, cpus("0-15"), 2), ElementsAre(cpus("0-7"), cpus("8-15")));
}

TEST(Placement, HyperthreadsNumberedFarApartStayWithTheirNode) {
  const auto two = nodes({"0-3,8-11", "4-7,12-15"});
  EXPECT_THAT(place_ranks(two, cpus("0-15"), 2), ElementsAre(cpus("0-3,8-11"), cpus("4-7,12-15")));
}

TEST(Placement, OnlyAllowedCpusByTheSystemsNumbers) {
  const auto two = nodes({"0-7", "8-15"});
  EXPECT_THAT(place_ranks(two, cpus("3,4"), 2), ElementsAre(cpus("3"), cpus("4")));
  EXPECT_THAT(place_ranks(two, cpus("3,12"), 2), ElementsAre(cpus("3"), cpus("12")));
  EXPECT_THAT(place_ranks(two, cpus("1"), 1), ElementsAre(cpus("1")));
  EXPECT_THAT(place_ranks(two, {}, 1), testing::Each(testing::IsEmpty()));
  EXPECT_THAT(place_ranks(two, cpus("0-15"), 0), testing::IsEmpty());
}

TEST(Placement, MoreRanksThanCpusAreDealtOutIfTheyComeOutEven) {
  const auto two = nodes({"0-1", "2-3"});
  EXPECT_THAT(place_ranks(two, cpus("1,3"), 6),
              ElementsAre(cpus("1"), cpus("3"), cpus("1"), cpus("3"), cpus("1"), cpus("3")));
  EXPECT_THAT(node_of_ranks(two, place_ranks(two, cpus("0-3"), 8)), ElementsAre(0, 0, 1, 1, 0, 0, 1, 1));
  EXPECT_THAT(place_ranks(two, cpus("1"), 3), ElementsAre(cpus("1"), cpus("1"), cpus("1")));
  EXPECT_THAT(place_ranks(two, cpus("1,3"), 7), testing::Each(testing::IsEmpty()));
}

TEST(Placement, EachRankHasACoreOfItsOwn) {
  const auto odd = nodes({"0", "", "1-6", "7-9"});
  for (int n = 1; n <= 12; ++n) {
    const std::vector<int> allowed = cpus("0-11");  // 10 and 11 are in no node
    std::set<int> seen;
    size_t count = 0;
    for (const std::vector<int>& place : place_ranks(odd, allowed, n)) {
      EXPECT_FALSE(place.empty()) << n;
      seen.insert(place.begin(), place.end());
      count += place.size();
    }
    EXPECT_EQ(seen.size(), 12u) << n;
    EXPECT_EQ(count, 12u) << n;
  }
}

}  // namespace
}  // namespace muster::topology
