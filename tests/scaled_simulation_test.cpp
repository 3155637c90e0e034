// Large clusters by small ones: how far that is from exact simulations, where both can be made.
#include "plan/scaled_simulation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "algorithms/algorithms.h"
#include "base/error.h"
#include "topology/cluster_file.h"

namespace muster {
namespace {

using testing::HasSubstr;

SimulatedNetwork hosts(int n) {
  return SimulatedNetwork(topology::read_cluster_file(
      fmt::format(R"({{"muster_cluster": 1, "hosts": [{{"count": {}, "name": "node", "ready": "dgx-h100"}}],)"
                  R"( "fabric": {{"rails": true, "switch_latency_us": 0.5}}}})",
                  n),
      "c.json",
      [](const std::string& path) -> std::string { fail(Result::invalid_argument, "no file {}", path); }));
}

SimCosts stated_costs() {
  SimCosts c;
  c.links[static_cast<size_t>(topology::LinkClass::nvlink)].latency_us = 1;
  c.links[static_cast<size_t>(topology::LinkClass::infiniband)] = {5, true};
  c.launch_us = 6;
  c.step_us = 0.2;
  c.channel_gb_per_s = 24;
  c.slots = 8;
  return c;
}

ScaledCluster scaled(Coll coll, const char* algorithm, int n) {
  auto placements = std::make_shared<std::map<int, Placement>>();  // by ranks
  ScaledCluster c;
  c.network = hosts;
  c.program = [=](int nranks, int rank) {
    Placement& p = (*placements)[nranks];
    if (p.host_of.empty()) {
      std::vector<int> host_of;
      for (int r = 0; r < nranks; ++r) host_of.push_back(r / 8);
      p = placement_of(host_of);
    }
    return find_algorithm(coll, algorithm)->make({nranks, rank, 0, &p});
  };
  c.hosts = n;
  c.most_steps = 0;
  return c;
}

// Bytes of rings by hand; time against the exact run. 64 or 128 hosts.
TEST(ScaledSimulation, IsAsGoodAsTheExactRun) {
  struct Case {
    Coll coll;
    const char* algorithm;
    int hosts;
    uint64_t bytes;  // of the table
    int channels;
  };
  for (const Case& c :
       {Case{Coll::all_reduce, "ring", 64, 1 << 30, 16}, Case{Coll::all_reduce, "ring", 64, 1 << 20, 1},
        Case{Coll::all_reduce, "ring", 128, 1 << 30, 16}, Case{Coll::all_gather, "ring", 64, 1 << 30, 8},
        Case{Coll::reduce_scatter, "ring", 64, 1 << 28, 2},
        Case{Coll::all_reduce, "doubling", 64, 1 << 20, 1}, Case{Coll::broadcast, "chain", 128, 1 << 22, 4},
        Case{Coll::all_to_all, "pairwise", 64, 1 << 28, 16},
        Case{Coll::all_reduce, "hierarchical", 64, 1 << 30, 16},
        Case{Coll::reduce_scatter, "hierarchical", 64, 1 << 28, 8},
        Case{Coll::all_gather, "hierarchical", 64, 1 << 28, 8},
        Case{Coll::all_to_all, "hierarchical", 64, 1 << 28, 16},
        Case{Coll::broadcast, "hierarchical", 128, 1 << 24, 4},
        Case{Coll::reduce, "hierarchical", 128, 1 << 24, 4}}) {
    const int ranks = 8 * c.hosts;
    const bool split = splits_count(c.coll);
    const int parts = split ? 1 : c.coll == Coll::all_to_all ? ranks * ranks : ranks;
    const SimCall call{std::max<uint64_t>(16, c.bytes / 4 / static_cast<uint64_t>(parts)), 4, 512 << 10,
                       c.channels};
    const ScaledCluster cluster = scaled(c.coll, c.algorithm, c.hosts);
    const Simulation fast = simulate_scaled(cluster, call, stated_costs());
    const Simulation exact =
        simulate([&](int r) { return cluster.program(ranks, r); }, call, hosts(c.hosts), stated_costs());
    EXPECT_TRUE(fast.extrapolated);
    EXPECT_LT(fast.steps, exact.steps);
    const double error = fast.time_us / exact.time_us - 1;
    fmt::print("{} {} of {} hosts, {} bytes: {:.1f} us, by 16 and 32 hosts {:+.4f} %\n", c.algorithm,
               name_of(c.coll), c.hosts, c.bytes, exact.time_us, 100 * error);
    EXPECT_NEAR(error, 0, 0.001);
    EXPECT_NEAR(fast.busbw, exact.busbw, exact.busbw * 0.001);
    ASSERT_FALSE(fast.uses.empty());
    const double sent = (split ? 2.0 : 1.0) * (ranks - 1) / ranks * static_cast<double>(c.bytes);
    const bool ring = c.algorithm == std::string("ring");
    for (size_t i = 0; i < fast.uses.size() && ring; ++i)
      EXPECT_NEAR(fast.uses[i].bytes, sent, sent * 1e-6) << fast.uses[i].resource.name;
    EXPECT_EQ(fast.finish_us.size(), 16u * 8);
  }
}

TEST(ScaledSimulation, SmallClustersAreSimulatedExactly) {
  const SimCall call{1 << 20, 4, 512 << 10, 1};
  const ScaledCluster cluster = scaled(Coll::all_reduce, "ring", 3);
  const Simulation s = simulate_scaled(cluster, call, stated_costs());
  EXPECT_FALSE(s.extrapolated);
  EXPECT_EQ(s.time_us,
            simulate([&](int r) { return cluster.program(24, r); }, call, hosts(3), stated_costs()).time_us);
}

// Trees and what is logarithmic have few steps, however many ranks there are.
TEST(ScaledSimulation, ProgramsOfFewStepsAreRunAsTheyAre) {
  const SimCall call{1 << 16, 4, 512 << 10, 1};
  for (const char* algorithm : {"tree", "halving_doubling", "bruck"}) {
    ScaledCluster cluster = scaled(Coll::all_reduce, algorithm, 160);
    cluster.most_steps = 1e6;
    const Simulation s = simulate_scaled(cluster, call, stated_costs());
    EXPECT_FALSE(s.extrapolated);
    EXPECT_EQ(s.finish_us.size(), 160u * 8);
    EXPECT_EQ(
        s.time_us,
        simulate([&](int r) { return cluster.program(1280, r); }, call, hosts(160), stated_costs()).time_us)
        << algorithm;
  }
}

TEST(ScaledSimulation, SixteenThousandRanks) {
  const Simulation s = simulate_scaled(scaled(Coll::all_reduce, "ring", 2048),
                                       {uint64_t{1} << 32, 4, 512 << 10, 16}, stated_costs());
  EXPECT_TRUE(s.extrapolated);
  // A ring's steps follow one another: no less than the latencies of 2 (n-1) of them, an eighth of which
  // cross the network.
  EXPECT_GT(s.time_us, 2 * 16383 * (7.0 / 8 * 1 + 1.0 / 8 * 5));
  for (const Simulation::Use& u : s.uses)
    EXPECT_NEAR(u.bytes, 2.0 * 16383 / 16384 * (uint64_t{1} << 34), 1e6);
}

std::string refusal(const ScaledCluster& c) {
  try {
    simulate_scaled(c, {1 << 16, 4, 1 << 20, 1}, stated_costs());
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::invalid_argument);
    return e.what();
  }
  return "ran";
}

TEST(ScaledSimulation, RefusesProgramsThatGrowOtherwise) {
  EXPECT_THAT(refusal(scaled(Coll::all_reduce, "halving_doubling", 64)), HasSubstr("grow with the cluster"));
  EXPECT_THAT(refusal(scaled(Coll::all_reduce, "bruck", 64)), HasSubstr("grow with the cluster"));
  EXPECT_THAT(refusal(scaled(Coll::all_gather, "direct", 64)), HasSubstr("grow with the cluster"));
  EXPECT_THAT(refusal(scaled(Coll::broadcast, "binomial", 64)), HasSubstr("grow with the cluster"));
  EXPECT_THAT(refusal(scaled(Coll::all_reduce, "tree", 64)), HasSubstr("doesn't grow evenly"));
  EXPECT_THAT(refusal(scaled(Coll::broadcast, "tree", 64)), HasSubstr("can't be scaled from 32 hosts"));
  ScaledCluster odd = scaled(Coll::all_reduce, "ring", 64);
  odd.large = odd.small;
  EXPECT_THAT(refusal(odd), HasSubstr("the second larger"));
}

}  // namespace
}  // namespace muster
