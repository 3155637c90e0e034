// Simulated times and traffic, against values worked out by hand.
#include "plan/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "algorithms/algorithms.h"
#include "base/error.h"
#include "plan/prediction.h"
#include "plan/trace.h"
#include "program/builder.h"
#include "topology/cluster_file.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using topology::LinkClass;

constexpr double kNvlink = 18 * 20.6;  // GB/s of a GPU's port in one direction, of an H100 (rates.h)

topology::Cluster cluster(const std::string& hosts, const std::string& fabric = "{}") {
  return topology::read_cluster_file(
      "{\"muster_cluster\": 1, \"hosts\": [" + hosts + "], \"fabric\": " + fabric + "}", "c.json",
      [](const std::string& path) -> std::string { fail(Result::invalid_argument, "no file {}", path); });
}
// GPUs joined by NVSwitches.
SimulatedNetwork box(int gpus) {
  return SimulatedNetwork(cluster(fmt::format(
      R"({{"host": {{"gpus": {}, "gpu": "H100", "nvswitches": 4, "nvlinks_per_gpu": 18}}}})", gpus)));
}
SimulatedNetwork dgx(int hosts, const std::string& fabric = R"({"rails": true})") {
  return SimulatedNetwork(
      cluster(fmt::format(R"({{"count": {}, "name": "node", "ready": "dgx-h100"}})", hosts), fabric));
}

std::vector<Program> programs(Coll coll, const char* algorithm, int n, int channels = 1) {
  std::vector<Program> all;
  for (int r = 0; r < n; ++r)
    all.push_back(replicate(find_algorithm(coll, algorithm)->make({n, r, 0}), channels));
  return all;
}
SimCosts nvlink_latency(double us) {
  SimCosts c;
  c.links[static_cast<size_t>(LinkClass::nvlink)].latency_us = us;
  return c;
}
// Bytes in one tile.
SimCall whole(uint64_t bytes) { return {bytes, 1, size_t{1} << 40, 1}; }
// Microseconds.
double flow(double bytes, double gb_per_s) { return bytes / gb_per_s / 1e3; }
constexpr double kTick = 1e-5;  // times are rounded to a picosecond in each of a few steps

TEST(Simulator, OneFlowTakesItsLatencyAndItsBytes) {
  const SimulatedNetwork n = box(2);
  SimCosts costs = nvlink_latency(3);
  costs.launch_us = 5;
  costs.step_us = 0.25;
  const Simulation s = simulate(programs(Coll::broadcast, "chain", 2), whole(64 << 20), n, costs);
  const double latency = 3 + 2 * topology::nvlink_latency(), sent = 5 + 0.25 + flow(64 << 20, kNvlink);
  EXPECT_NEAR(s.finish_us[0], sent, kTick);
  EXPECT_NEAR(s.finish_us[1], sent + latency + 0.25, kTick);
  EXPECT_EQ(s.time_us, s.finish_us[1]);
  EXPECT_NEAR(s.algbw, (64 << 20) / s.time_us / 1e3, 1e-9);
  EXPECT_EQ(s.busbw, s.algbw);
  EXPECT_EQ(s.steps, 2u);
  EXPECT_FALSE(s.extrapolated);
}

// Messages of a group: (from, to). All of the same length.
std::vector<Program> messages(int n, const std::vector<std::pair<int, int>>& all) {
  std::vector<Program> p;
  for (int r = 0; r < n; ++r) {
    std::vector<Message> mine;
    for (const auto& [from, to] : all) {
      if (from == r) mine.push_back({true, to});
      if (to == r) mine.push_back({false, from});
    }
    p.push_back(send_recv(n, r, mine));
  }
  return p;
}

TEST(Simulator, FlowsIntoOneRankShareItsPort) {
  const double b = 8 << 20, latency = 2 * topology::nvlink_latency();
  const Simulation s = simulate(messages(4, {{0, 2}, {1, 2}}), whole(8 << 20), box(4), {});
  EXPECT_NEAR(s.finish_us[2], flow(2 * b, kNvlink) + latency, kTick);
  EXPECT_EQ(s.finish_us[3], 0) << "has nothing to do";
}

// Three flows into rank 3 have a third each; what rank 2 has left is for its flow to rank 1.
TEST(Simulator, UnequalFlowsHaveTheirMaxMinFairShares) {
  const double b = 8 << 20, latency = 2 * topology::nvlink_latency();
  const Simulation s = simulate(messages(4, {{0, 3}, {1, 3}, {2, 3}, {2, 1}}), whole(8 << 20), box(4), {});
  EXPECT_NEAR(s.finish_us[1], flow(3 * b, kNvlink), kTick)
      << "its message to rank 3 takes longer than what it receives";
  EXPECT_NEAR(s.finish_us[3], flow(3 * b, kNvlink) + latency, kTick);
  // To a rank with nothing else to do: two thirds of the port for it.
  const Simulation t = simulate(messages(5, {{0, 3}, {1, 3}, {2, 3}, {2, 4}}), whole(8 << 20), box(5), {});
  EXPECT_NEAR(t.finish_us[4], flow(1.5 * b, kNvlink) + latency, kTick);
}

TEST(Simulator, RingAllReduceInABox) {
  for (const int n : {2, 3, 8}) {
    const Simulation s = simulate(programs(Coll::all_reduce, "ring", n), whole(uint64_t{1536} << n), box(n),
                                  nvlink_latency(1));
    const double chunk = (1536 << n) / n;
    EXPECT_NEAR(s.time_us, 2 * (n - 1) * (1 + 2 * topology::nvlink_latency() + flow(chunk, kNvlink)), 0.01)
        << n;
    EXPECT_NEAR(s.busbw, s.algbw * 2 * (n - 1) / n, 1e-9);
  }
}

TEST(Simulator, BytesOfEachLinkOfARing) {
  const int n = 8;
  const uint64_t bytes = 64 << 20;
  const Simulation s =
      simulate(programs(Coll::all_reduce, "ring", n), {bytes / 4, 4, 1 << 20, 1}, box(n), {});
  ASSERT_EQ(s.uses.size(), 16u) << "each GPU's port, out and in";
  for (const Simulation::Use& u : s.uses) {
    EXPECT_EQ(u.bytes, 2.0 * (n - 1) / n * bytes);
    EXPECT_NEAR(u.utilisation, u.bytes / (kNvlink * 1e3 * s.time_us), 1e-12);
  }
  EXPECT_EQ(s.busiest, 0);
}

// What a program sends and loads over each pair of ranks, from the program itself.
std::map<std::pair<int, int>, double> traffic(const std::vector<Program>& all, uint64_t count_per_chunk) {
  std::map<std::pair<int, int>, double> bytes;
  for (const Program& p : all)
    for (const Channel& c : p.channels)
      for (const Loop& l : c.loops)
        for (const Step& s : l.steps) {
          const double b = static_cast<double>(s.pieces) * static_cast<double>(count_per_chunk) / c.parts;
          for (const Ref& r : s.sources)
            if (r.kind == Ref::Kind::window && r.peer != p.rank) bytes[{r.peer, p.rank}] += b;
          for (const Ref& r : s.destinations)
            if (r.kind != Ref::Kind::local && r.peer != p.rank) bytes[{p.rank, r.peer}] += b;
        }
  return bytes;
}

TEST(Simulator, EveryAlgorithmSendsWhatItsProgramSaysAndNoLinkCarriesMoreThanItCan) {
  for (const Algorithm& a : algorithms())
    for (const int n : {1, 2, 3, 5, 8, 16}) {
      std::vector<Program> all;
      for (int r = 0; r < n; ++r) all.push_back(a.make({n, r, 0}));
      const SimulatedNetwork net = n <= 8 ? box(n) : dgx(2);
      const uint64_t chunk = 64 << 10;
      const uint64_t count = splits_count(a.coll) ? chunk * all[0].chunks : chunk;
      // One that isn't for several tiles has one.
      const SimCall call{count, 1, a.whole ? chunk : chunk / 4, 1};
      const Simulation s = simulate(all, call, net, nvlink_latency(1));
      std::vector<double> expected(net.resources());
      for (const auto& [ends, bytes] : traffic(all, chunk))
        for (const uint32_t i : net.route(ends.first, ends.second).resources) expected[i] += bytes;
      std::map<std::string, double> by_name, found;
      for (uint32_t i = 0; i < expected.size(); ++i)
        if (expected[i] > 0) by_name[net.resource(i).name] = expected[i];
      for (const Simulation::Use& u : s.uses) {
        found[u.resource.name] = u.bytes;
        EXPECT_LE(u.utilisation, 1 + 1e-6);
      }
      EXPECT_EQ(found, by_name) << name_of(a.coll) << " " << a.name << " " << n;
      for (int r = 0; r < n && n > 1; ++r) EXPECT_LE(s.finish_us[static_cast<size_t>(r)], s.time_us);
    }
}

// Two slots: a rank sends two tiles, then waits until the first has been passed on and its slot is known to
// be free.
TEST(Simulator, TilesFollowEachOtherAsSlotsAllow) {
  const double tile = 1 << 20, t = flow(tile, kNvlink), l = 1 + 2 * topology::nvlink_latency();
  const int tiles = 8;
  const auto time = [&](int slots) {
    SimCosts costs = nvlink_latency(1);
    costs.slots = slots;
    return simulate(programs(Coll::broadcast, "chain", 3), {uint64_t{tiles} << 20, 1, size_t{1} << 20, 1},
                    box(3), costs)
        .time_us;
  };
  ASSERT_LT(l, t);
  EXPECT_NEAR(time(2), tiles * (t + l) + t, kTick);
  EXPECT_NEAR(time(1), tiles * 2 * (t + l), kTick) << "nothing overlaps on a connection";
  EXPECT_NEAR(time(4), (tiles - 1) * t + 2 * (t + l), kTick) << "the link never rests";
}

TEST(Simulator, ChannelsShareALink) {
  // Two GPUs below one PCI switch: all that goes from one to the other takes one link up and one down.
  const SimulatedNetwork pci(cluster(R"({"host": {"gpus": 2, "gpu": "L40S", "gpus_per_pci_switch": 2}})"));
  const Route route = pci.route(0, 1);
  const double rate = pci.gb_per_s(route.resources[0]), b = 32 << 20;
  for (const int channels : {1, 2, 4}) {
    const Simulation s = simulate(programs(Coll::broadcast, "chain", 2, channels), whole(32 << 20), pci, {});
    EXPECT_NEAR(s.time_us, flow(b, rate) + route.latency_us, kTick) << channels;
    EXPECT_NEAR(s.uses[0].utilisation, 1, 0.01);
    EXPECT_EQ(s.uses[0].bytes, b);
  }
  // A channel that copies to two places at a quarter of the link: one alone can't fill it, eight can.
  SimCosts slow;
  slow.channel_gb_per_s = rate / 4;
  for (const int channels : {1, 2, 8}) {
    const Simulation s =
        simulate(programs(Coll::broadcast, "chain", 2, channels), whole(32 << 20), pci, slow);
    // The receiver copies once.
    const double per_channel = b / channels;
    EXPECT_NEAR(s.time_us,
                std::max(flow(2 * per_channel, rate / 4), flow(b, rate)) + route.latency_us +
                    flow(per_channel, rate / 4),
                0.001)
        << channels;
  }
}

TEST(Simulator, OneChannelStandsForManyAlike) {
  for (const char* algorithm : {"ring", "direct"}) {
    const uint64_t bytes = uint64_t{64} << 20;
    SimCosts costs = nvlink_latency(1);
    costs.channel_gb_per_s = 20;
    costs.rank_gb_per_s = 100;
    costs.combine_work = 1.5;
    const Simulation many =
        simulate(programs(Coll::all_reduce, algorithm, 16, 4), {bytes / 4, 4, 256 << 10, 1}, dgx(2), costs);
    const Simulation one =
        simulate(programs(Coll::all_reduce, algorithm, 16, 1), {bytes / 4, 4, 256 << 10, 4}, dgx(2), costs);
    EXPECT_NEAR(one.time_us, many.time_us, many.time_us * 1e-6);
    EXPECT_EQ(one.steps, many.steps);
    ASSERT_EQ(one.uses.size(), many.uses.size());
    for (size_t i = 0; i < one.uses.size(); ++i) {
      EXPECT_EQ(one.uses[i].resource.name, many.uses[i].resource.name);
      EXPECT_NEAR(one.uses[i].bytes, many.uses[i].bytes, 1);
    }
  }
}

// Where each pair of GPUs has a link of its own, prices say that all are used at a time; so do the programs.
TEST(Simulator, ChannelsUseAllLinksOfAFullMesh) {
  for (const char* host : {R"({"gpus": 8, "gpu": "H100", "nvlinks_per_gpu": 14})",
                           R"({"gpus": 4, "gpu": "A100", "nvlinks_per_gpu": 12})"}) {
    const topology::Cluster mesh = cluster(fmt::format(R"({{"host": {}}})", host));
    const SimulatedNetwork network(mesh);
    const Links links = links_of(mesh, all_gpus(mesh));
    for (const auto& [coll, algorithm] :
         {std::pair(Coll::all_reduce, "direct"), std::pair(Coll::reduce_scatter, "direct"),
          std::pair(Coll::all_gather, "direct"), std::pair(Coll::all_to_all, "pairwise")}) {
      CallShape shape{coll, DataType::float32, RedOp::sum, 0, 1};
      shape.count = count_of(shape, 256 << 20, network.ranks());
      PredictOptions only;
      only.algorithm = algorithm;
      only.protocol = "simple";
      const Prediction p = predict(shape, links, Constants::built_in(), only);
      const Candidate& c = *p.best();
      const auto maker = [&](int r) { return make_program(*c.known, {network.ranks(), r}, c.channels); };
      SimOptions few;
      few.most_tiles = 16;
      const Simulation s = simulate(maker, {shape.count, 4, c.chunk_bytes, 1}, network,
                                    sim_costs(links, c.protocol, Constants::built_in()), few);
      EXPECT_LT(s.time_us / c.price.us(), 1.25)
          << host << " " << name_of(coll) << ", " << c.channels << " channels";
      EXPECT_GT(s.time_us / c.price.us(), 0.8)
          << host << " " << name_of(coll) << ", " << c.channels << " channels";
    }
  }
}

TEST(Simulator, AProxySendsWhileTheChannelGoesOn) {
  const SimulatedNetwork n = dgx(2);
  const Route route = n.route(0, 8);
  double rate = 1e9;
  for (const uint32_t i : route.resources) rate = std::min(rate, n.gb_per_s(i));
  SimCosts costs;
  costs.channel_gb_per_s = 4 * rate;
  costs.slots = 4;
  const double b = 1 << 20, copy = flow(b, 4 * rate), wire = flow(b, rate);
  std::vector<Program> p;
  for (int r = 0; r < 16; ++r) {
    Builder builder("two", Coll::all_gather, 16, r);
    if (r == 0) {
      builder.step(0, {input(0)}, {slot(8)});
      builder.step(0, {input(0)}, {slot(8)});
    }
    if (r == 8) {
      builder.step(0, {slot(0)}, {output(0)});
      builder.step(0, {slot(0)}, {output(0)});
    }
    p.push_back(builder.done());
  }
  const Simulation direct = simulate(p, whole(1 << 20), n, costs);
  EXPECT_NEAR(direct.finish_us[0], 2 * wire, kTick) << "the channel writes over the wire itself";
  EXPECT_NEAR(direct.finish_us[8], 2 * wire + route.latency_us + copy, kTick);
  costs.links[static_cast<size_t>(route.link_class)].by_proxy = true;
  const Simulation proxied = simulate(p, whole(1 << 20), n, costs);
  EXPECT_NEAR(proxied.finish_us[0], 2 * copy, kTick);
  EXPECT_NEAR(proxied.finish_us[8], copy + 2 * wire + route.latency_us + copy, kTick)
      << "one message after the other";
}

TEST(Simulator, CoresCopyAndCombine) {
  SimCosts costs;
  costs.combine_work = 2;
  const double b = 1 << 20, copy = flow(b, 10);
  // The root copies to its output and to the slot, the other one copies once.
  const auto chain = programs(Coll::broadcast, "chain", 2);
  EXPECT_NEAR(simulate(chain, whole(1 << 20), SimulatedNetwork(HostMemory{{0, 1}, 10, 0, 0.1}), costs).time_us,
              2 * copy + 0.1 + copy, kTick);
  // Both send what they have, and combine two sources, which is two copies' worth.
  const auto one_shot = programs(Coll::all_reduce, "one_shot", 2);
  EXPECT_NEAR(simulate(one_shot, whole(1 << 20), SimulatedNetwork(HostMemory{{0, 1}, 10, 0, 0.1}), costs).time_us,
              copy + 0.1 + 2 * copy, kTick);
  EXPECT_NEAR(simulate(one_shot, whole(1 << 20), SimulatedNetwork(HostMemory{{0, 0}, 10, 0, 0.1}), costs).time_us,
              2 * copy + 0.1 + 4 * copy, kTick)
      << "sharing a core";
  const Simulation s = simulate(one_shot, whole(1 << 20), SimulatedNetwork(HostMemory{{0, 1}, 10, 10, 0.1}), costs);
  EXPECT_NEAR(s.time_us, 2 * copy + 0.1 + 4 * copy, kTick) << "sharing memory";
  EXPECT_EQ(s.uses[static_cast<size_t>(s.busiest)].resource.name, "memory");
}

TEST(Simulator, TheSameCallGivesTheSameNumbers) {
  const auto run = [] {
    SimCosts costs = nvlink_latency(0.7);
    costs.channel_gb_per_s = 21;
    SimOptions log;
    log.log = true;
    return simulate(programs(Coll::all_reduce, "direct", 16, 3), {1000003, 4, 64 << 10, 1}, dgx(2), costs,
                    log);
  };
  const Simulation a = run(), b = run();
  EXPECT_EQ(a.time_us, b.time_us);
  EXPECT_EQ(a.finish_us, b.finish_us);
  ASSERT_EQ(a.log.size(), b.log.size());
  ASSERT_EQ(a.log.size(), a.steps);
  for (size_t i = 0; i < a.log.size(); ++i) {
    EXPECT_EQ(a.log[i].end_us, b.log[i].end_us);
    EXPECT_EQ(a.log[i].rank, b.log[i].rank);
  }
}

TEST(Simulator, ManyTilesAreExtrapolatedOnlyWhereAllowedAndSaySo) {
  SimCosts costs = nvlink_latency(1);
  costs.channel_gb_per_s = 25;
  for (const auto& [coll, algorithm] :
       {std::pair(Coll::all_reduce, "ring"), std::pair(Coll::broadcast, "chain")}) {
    const SimCall call{(uint64_t{300} << 20) / 4, 4, 128 << 10, 1};
    const Simulation exact = simulate(programs(coll, algorithm, 8), call, box(8), costs);
    EXPECT_FALSE(exact.extrapolated);
    SimOptions few;
    few.most_tiles = 32;
    const Simulation fast = simulate(programs(coll, algorithm, 8), call, box(8), costs, few);
    EXPECT_TRUE(fast.extrapolated);
    EXPECT_LT(fast.steps, exact.steps / 4);
    EXPECT_NEAR(fast.time_us, exact.time_us, exact.time_us * 0.001);
    for (size_t i = 0; i < exact.uses.size(); ++i)
      EXPECT_NEAR(fast.uses[i].bytes, exact.uses[i].bytes, exact.uses[i].bytes * 1e-9);
    few.most_tiles = 100000;
    EXPECT_FALSE(simulate(programs(coll, algorithm, 8), call, box(8), costs, few).extrapolated);
  }
}

std::string refusal(const std::vector<Program>& p, const SimulatedNetwork& n, Result code,
                    const SimCall& call = whole(1024), SimCosts costs = {}) {
  try {
    simulate(p, call, n, costs);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "ran";
}

TEST(Simulator, ProgramsThatWaitForEver) {
  std::vector<Program> p;
  for (int r = 0; r < 2; ++r) {
    Builder b("stuck", Coll::all_gather, 2, r);
    b.step(0, {input(0)}, {output(0)});
    b.step(0, {slot(1 - r)}, {output(0)});
    b.step(0, {input(0)}, {slot(1 - r)});
    p.push_back(b.done());
  }
  EXPECT_THAT(refusal(p, box(2), Result::internal_error),
              AllOf(HasSubstr("rank 0, channel 0, loop 0, step 1 (slot(1) -> output(0))"),
                    HasSubstr("a message from rank 1 on lane 0")));
}

TEST(Simulator, RefusesWhatDoesNotFit) {
  const auto ring = programs(Coll::all_gather, "ring", 2);
  EXPECT_THAT(refusal(ring, box(3), Result::invalid_argument),
              HasSubstr("2 programs for a network of 3 ranks"));
  EXPECT_THAT(refusal({ring[0], ring[0]}, box(2), Result::invalid_argument),
              HasSubstr("rank 1 of 2 has the program of rank 0"));
  EXPECT_THAT(
      refusal({ring[0], Builder("none", Coll::all_gather, 2, 1).done()}, box(2), Result::invalid_argument),
      HasSubstr("which has no step for that"));
  EXPECT_THAT(refusal(ring, box(2), Result::invalid_argument, {1, 4, 2, 1}),
              HasSubstr("a tile must hold an element"));
  SimCosts costs;
  costs.slots = 0;
  EXPECT_THAT(refusal(ring, box(2), Result::invalid_argument, whole(8), costs), HasSubstr("slots = 0"));
  std::vector<Program> twice;
  for (int r = 0; r < 2; ++r) {
    Builder b("twice", Coll::all_gather, 2, r);
    if (r == 0) b.step(0, {input(0)}, {slot(1), slot(1)});
    if (r == 1) b.step(0, {slot(0)}, {output(0)});
    twice.push_back(b.done());
  }
  EXPECT_THAT(refusal(twice, box(2), Result::invalid_argument), HasSubstr("uses a connection twice"));
}

TEST(Simulator, NothingAndOneRank) {
  const Simulation none =
      simulate(programs(Coll::all_reduce, "ring", 4), whole(0), box(4), nvlink_latency(1));
  EXPECT_EQ(none.time_us, 0);
  EXPECT_TRUE(none.uses.empty());
  EXPECT_EQ(none.busiest, -1);
  SimCosts costs;
  costs.channel_gb_per_s = 10;
  const Simulation alone = simulate(programs(Coll::all_reduce, "ring", 1), whole(10000), box(1), costs);
  EXPECT_NEAR(alone.time_us, flow(10000, 10), kTick) << "a copy from input to output";
  EXPECT_EQ(alone.busbw, 0);
}

TEST(Simulator, TraceOfAllSteps) {
  SimOptions log;
  log.log = true;
  const auto p = programs(Coll::all_reduce, "ring", 3, 2);
  const Simulation s = simulate(p, {3 * 1024, 4, 1024, 1}, box(3), nvlink_latency(1), log);
  const auto name = [&](const StepRecord& r) {
    return to_string(p[static_cast<size_t>(r.rank)]
                         .channels[static_cast<size_t>(r.channel)]
                         .loops[0]
                         .steps[static_cast<size_t>(r.step)]);
  };
  const auto j = nlohmann::json::parse(chrome_trace(s, name));
  size_t steps = 0, names = 0;
  double last = 0;
  for (const auto& e : j.at("traceEvents")) {
    if (e.at("ph") == "M") {
      ++names;
      continue;
    }
    ++steps;
    EXPECT_EQ(e.at("ph"), "X");
    EXPECT_GE(e.at("dur").get<double>(), 0);
    last = std::max(last, e.at("ts").get<double>() + e.at("dur").get<double>());
  }
  EXPECT_EQ(steps, s.steps);
  EXPECT_EQ(names, 3 * 2 + 3 * 2u) << "two per rank, one per channel";
  EXPECT_NEAR(last, s.time_us, 1e-9);
  EXPECT_THAT(chrome_trace(s), HasSubstr("\"step 0\""));
  EXPECT_THAT(chrome_trace(s, name), HasSubstr("contribution(2) -> slot(1"));
}

// 128 hosts of 8: a ring in the order of ranks. Each host's 8 GPUs send 7 times over NVLink and once over the
// network; with data enough the network's port bounds it, and each carries 2 (n-1)/n of the data.
TEST(Simulator, RingOfAThousandRanks) {
  const int n = 1024;
  const SimulatedNetwork net = dgx(128);
  const uint64_t bytes = uint64_t{4} << 30;
  SimCosts costs = nvlink_latency(1);
  costs.links[static_cast<size_t>(LinkClass::infiniband)] = {5, true};
  costs.slots = 8;
  const auto maker = [&](int r) { return find_algorithm(Coll::all_reduce, "ring")->make({n, r, 0}); };
  const Simulation s = simulate(maker, {bytes / 4, 4, 512 << 10, 16}, net, costs);
  EXPECT_EQ(s.steps, uint64_t{1024} * 2047 * 16);
  for (const Simulation::Use& u : s.uses) {
    EXPECT_NEAR(u.bytes, 2.0 * (n - 1) / n * static_cast<double>(bytes), 1e-9 * static_cast<double>(bytes));
    EXPECT_LE(u.utilisation, 1 + 1e-6);
  }
  EXPECT_LT(s.busbw, 50) << "one port of 400 Gbit/s";
  EXPECT_GT(s.busbw, 10);
}

}  // namespace
}  // namespace muster
