// Ranks that do alike are run once: the same times and bytes as of all ranks run.
#include "plan/symmetry.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "algorithms/algorithms.h"
#include "base/error.h"
#include "topology/cluster_file.h"

namespace muster {
namespace {

using topology::LinkClass;

SimulatedNetwork hosts(int n, const char* fabric = R"({"rails": true, "switch_latency_us": 0.5})") {
  return SimulatedNetwork(topology::read_cluster_file(
      fmt::format(R"({{"muster_cluster": 1, "hosts": [{{"count": {}, "name": "node", "ready": "dgx-h100"}}],)"
                  R"( "fabric": {}}})",
                  n, fabric),
      "c.json",
      [](const std::string& path) -> std::string { fail(Result::invalid_argument, "no file {}", path); }));
}

SimCosts stated_costs() {
  SimCosts c;
  c.links[static_cast<size_t>(LinkClass::nvlink)].latency_us = 1;
  c.links[static_cast<size_t>(LinkClass::infiniband)] = {5, true};
  c.launch_us = 6;
  c.step_us = 0.2;
  c.channel_gb_per_s = 60;
  c.combine_work = 1.25;
  c.slots = 4;
  return c;
}

Program make(Coll coll, const char* algorithm, int nranks, int rank, int channels) {
  std::vector<int> host_of;
  for (int r = 0; r < nranks; ++r) host_of.push_back(r / 8);
  const Placement placement = placement_of(host_of);
  return make_program(*find_algorithm(coll, algorithm), {nranks, rank, 0, &placement}, channels);
}

// The numbers are those of a simulator that ran every rank and shared every link, as hexadecimal fractions.
TEST(Symmetry, TimesAreThoseOfEveryRankRun) {
  struct Case {
    Coll coll;
    const char* algorithm;
    int ranks, channels, each;
    uint64_t count;  // the odd ones make chunks of different lengths
    double time_us;
  };
  for (const Case& c : {
           Case{Coll::all_reduce, "ring", 8, 8, 1, 16 << 20, 0x1.1b097b95a2941p+9},
           Case{Coll::all_reduce, "ring", 32, 8, 2, 32 << 20, 0x1.5437b1876188bp+12},
           Case{Coll::all_reduce, "ring", 32, 8, 2, (32 << 20) - 12345, 0x1.54227ef9db22dp+12},
           Case{Coll::all_reduce, "tree", 64, 4, 1, 8 << 20, 0x1.4dee63992c8c5p+10},
           Case{Coll::all_reduce, "hierarchical", 64, 8, 1, 32 << 20, 0x1.062d2f5558213p+11},
           Case{Coll::all_reduce, "hierarchical", 64, 8, 1, (32 << 20) + 777, 0x1.1011f79e9d0eap+11},
           Case{Coll::all_reduce, "doubling", 32, 2, 1, 1 << 20, 0x1.8a30789613d32p+9},
           Case{Coll::all_reduce, "direct", 32, 3, 2, 1000003, 0x1.84bb443d46b27p+7},
           Case{Coll::all_gather, "ring", 64, 4, 1, 1 << 20, 0x1.59f3b3affb04fp+12},
           Case{Coll::reduce_scatter, "hierarchical", 64, 4, 1, 1 << 20, 0x1.a4b97c1bda512p+11},
           Case{Coll::broadcast, "chain", 32, 4, 2, 8 << 20, 0x1.23f220642396p+10},
           Case{Coll::all_to_all, "pairwise", 64, 4, 1, 1 << 16, 0x1.635bcc39ffd61p+8},
       }) {
    const SimulatedNetwork network = hosts(c.ranks / 8);
    const auto maker = [&](int r) { return make(c.coll, c.algorithm, c.ranks, r, c.channels); };
    const Simulation s = simulate(maker, {c.count, 4, 256 << 10, c.each}, network, stated_costs());
    EXPECT_EQ(s.time_us, c.time_us) << fmt::format("{} {} {} ranks {} elements: {:a}", name_of(c.coll),
                                                   c.algorithm, c.ranks, c.count, s.time_us);
  }
}

// With a record of steps every rank is run.
void expect_the_same(const ProgramMaker& maker, const SimCall& call, const SimulatedNetwork& network,
                     const SimCosts& costs, const std::string& what) {
  SimOptions log;
  log.log = true;
  const Simulation folded = simulate(maker, call, network, costs),
                   all = simulate(maker, call, network, costs, log);
  // Shares that are added in another order may round an end to the next picosecond.
  constexpr double kFewTicks = 5e-6;
  EXPECT_NEAR(folded.time_us, all.time_us, kFewTicks) << what;
  for (size_t r = 0; r < all.finish_us.size(); ++r)
    EXPECT_NEAR(folded.finish_us[r], all.finish_us[r], kFewTicks) << what << ", rank " << r;
  EXPECT_EQ(folded.steps, all.steps) << what;
  ASSERT_EQ(folded.uses.size(), all.uses.size()) << what;
  for (size_t i = 0; i < all.uses.size(); ++i) {
    EXPECT_EQ(folded.uses[i].resource.name, all.uses[i].resource.name) << what;
    EXPECT_EQ(folded.uses[i].bytes, all.uses[i].bytes) << what << ", " << all.uses[i].resource.name;
  }
}

TEST(Symmetry, EveryAlgorithmTakesAsLongAsAllRanksRun) {
  const SimulatedNetwork two = hosts(2, R"({"hosts_per_leaf": 1, "oversubscription": 2})");
  const SimulatedNetwork memory(HostMemory{std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}, 9, 20, 0.1});
  SimCosts own = stated_costs();
  own.rank_gb_per_s = 100;
  for (const Algorithm& a : algorithms())
    for (const bool in_memory : {false, true}) {
      const int n = in_memory ? 8 : 16, channels = a.whole ? 1 : 2;
      const auto maker = [&](int r) { return make(a.coll, a.name, n, r, channels); };
      const uint64_t per_chunk = 32 << 10, count = per_chunk * (splits_count(a.coll) ? maker(0).chunks : 1);
      for (const uint64_t odd : {0, 13})
        expect_the_same(maker, {count - odd, 4, a.whole ? size_t{1} << 30 : 32 << 10, 1},
                        in_memory ? memory : two, own,
                        fmt::format("{} {} {} {}", name_of(a.coll), a.name, n, odd));
    }
}

TEST(Symmetry, EvenChunksChangeTimeLittle) {
  SimOptions even;
  even.even_chunks = true;
  for (const char* algorithm : {"ring", "hierarchical"})
    for (const uint64_t count : {16'000'001, 12'345'678}) {
      const SimulatedNetwork network = hosts(8);
      const SimCall call{count, 4, 256 << 10, 1};
      const auto maker = [&](int r) { return make(Coll::all_reduce, algorithm, 64, r, 4); };
      const double exact = simulate(maker, call, network, stated_costs()).time_us;
      EXPECT_NEAR(simulate(maker, call, network, stated_costs(), even).time_us, exact, 3e-3 * exact)
          << algorithm << " " << count;
    }
}

TEST(Symmetry, OneHostsPlacesStandForAllHosts) {
  const auto left = [](int n, uint64_t count, const char* algorithm) {
    const SimulatedNetwork network = hosts(n);
    const SimCall call{count, 4, 256 << 10, 1};
    FlatPrograms programs([&](int r) { return make(Coll::all_reduce, algorithm, 8 * n, r, 1); }, 8 * n, call,
                          stated_costs());
    SimulationLayout layout(programs, call, network, stated_costs());
    fold(programs, layout);
    return programs.channels.size();
  };
  EXPECT_EQ(left(4, 32 << 10, "ring"), 8u);
  EXPECT_EQ(left(16, 32 << 10, "ring"), 8u);
  EXPECT_EQ(left(4, 32 << 10, "hierarchical"), 8u);
  EXPECT_EQ(left(4, 1, "ring"), 32u) << "each rank has the one element at another step";
}

}  // namespace
}  // namespace muster
