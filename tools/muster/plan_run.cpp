#include "plan_run.h"

#include <string_view>

#include "base/error.h"

namespace muster::tool {

PlanRun::PlanRun(const topology::Cluster& cluster, std::span<const RankPlace> places,
                 const Prediction& prediction, const Candidate& candidate)
    : cluster_(cluster),
      places_(places.begin(), places.end()),
      prediction_(prediction),
      candidate_(candidate) {
  if (!candidate.known) fail(Result::invalid_argument, "{} has no program", candidate.algorithm);
  std::vector<int> hosts;
  for (const RankPlace& p : places) hosts.push_back(p.host);
  placement_ = placement_of(hosts);
  const std::string_view name = candidate.algorithm;
  if (name != "ring" && name != "chain") return;
  const Rings rings = find_rings(cluster, places,
                                 {.most_channels = candidate.channels, .least_channels = candidate.channels});
  for (const RingChannel& c : rings.channels) placement_.rings.push_back(c.ranks);
  const auto& orders = placement_.rings;
  const auto repeats_after = [&](size_t d) {
    for (size_t c = d; c < orders.size(); ++c)
      if (orders[c] != orders[c - d]) return false;
    return true;
  };
  for (distinct_ = 1; candidate.channels % distinct_ != 0 || !repeats_after(static_cast<size_t>(distinct_));)
    ++distinct_;
}

Program PlanRun::program(int rank) const {
  return make_program(*candidate_.known,
                      {prediction_.links.spread.ranks, rank, prediction_.call.root, &placement_},
                      candidate_.channels);
}

Simulation PlanRun::simulate(const Constants& k, int per_thread, bool trace, uint64_t most_tiles) const {
  const CallShape& call = prediction_.call;
  SimCall sim;
  sim.count = call.count;
  sim.element_bytes = size_of(call.type);
  sim.tile_bytes = candidate_.chunk_bytes;
  // Of channels that are alike one is run, and stands for all.
  const int channels = trace ? candidate_.channels : distinct_;
  sim.channels = candidate_.channels / channels;
  const ProgramMaker maker = [&](int rank) {
    return make_program(*candidate_.known, {prediction_.links.spread.ranks, rank, call.root, &placement_},
                        channels);
  };
  SimOptions options;
  options.log = trace;
  options.most_tiles = most_tiles;
  return muster::simulate(maker, sim, Network(cluster_, places_),
                          sim_costs(prediction_.links, candidate_.protocol, k, per_thread), options);
}

}  // namespace muster::tool
