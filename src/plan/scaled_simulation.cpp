#include "plan/scaled_simulation.h"

#include <algorithm>

#include "base/error.h"
#include "plan/bandwidth.h"

namespace muster {

namespace {

// Of one channel: those that follow one another. 0: the program has messages that grow with the cluster.
double steps_of(const Program& p) {
  size_t most = 0, peers = 0;
  for (const Channel& c : p.channels) {
    size_t steps = 0;
    for (const Loop& l : c.loops) {
      steps += l.steps.size();
      for (const Step& s : l.steps) {
        if (s.pieces > 1) return 0;
        const auto remote = [](const Ref& r) { return r.kind != Ref::Kind::local; };
        peers = std::max(
            {peers, static_cast<size_t>(std::count_if(s.sources.begin(), s.sources.end(), remote)),
             static_cast<size_t>(std::count_if(s.destinations.begin(), s.destinations.end(), remote))});
      }
    }
    most = std::max(most, steps);
  }
  return peers > 1 ? 0 : static_cast<double>(most);
}

struct Sample {
  Simulation result;
  double steps = 0;
};

}  // namespace

Simulation simulate_scaled(const ScaledCluster& cluster, const SimCall& call, const SimCosts& costs,
                           const SimOptions& options) {
  if (cluster.small < 2 || cluster.large <= cluster.small || cluster.hosts < 1)
    fail(Result::invalid_argument,
         "{} hosts by runs of {} and {}: these must be more than 1, the second larger", cluster.hosts,
         cluster.small, cluster.large);
  const int largest = std::min(cluster.hosts, cluster.large);
  const Network large = cluster.network(largest);
  const auto run = [&](const Network& n, const SimCall& c) {
    return simulate([&](int rank) { return cluster.program(n.ranks(), rank); }, c, n, costs, options);
  };
  if (cluster.hosts <= cluster.large) return run(large, call);

  const int per_host = large.ranks() / cluster.large, ranks = per_host * cluster.hosts;
  const Program whole = cluster.program(ranks, 0);
  const double steps = steps_of(whole);
  const auto sample = [&](const Network& n) {
    const Program p = cluster.program(n.ranks(), 0);
    SimCall c = call;
    // Its chunks are as long as the whole cluster's.
    if (splits_count(p.coll))
      c.count = static_cast<uint64_t>(static_cast<double>(call.count) * p.chunks / whole.chunks);
    return Sample{run(n, c), steps_of(p)};
  };
  const Network little = cluster.network(cluster.small);
  if (per_host * cluster.large != large.ranks() || per_host * cluster.small != little.ranks())
    fail(Result::invalid_argument, "{} ranks on {} hosts and {} on {}: hosts must have as many each",
         little.ranks(), cluster.small, large.ranks(), cluster.large);
  const auto refuse = [&](const char* why) {
    fail(Result::invalid_argument, "{} {} can't be scaled from {} to {} hosts: {}", whole.algorithm,
         name_of(whole.coll), cluster.large, cluster.hosts, why);
  };
  if (steps == 0) refuse("its messages, or the peers of a step, grow with the cluster");
  if (steps <= steps_of(cluster.program(large.ranks(), 0)) ||
      steps_of(cluster.program(large.ranks(), 0)) <= steps_of(cluster.program(little.ranks(), 0)))
    refuse("its ranks have no more steps in a larger cluster");

  const Sample a = sample(little), b = sample(large);
  const double more = (steps - b.steps) / (b.steps - a.steps);
  Simulation s = b.result;
  const auto scale = [&](double& value, double before) { value += (value - before) * more; };
  s.extrapolated = true;
  s.steps += a.result.steps;
  scale(s.time_us, a.result.time_us);
  s.finish_us.resize(a.result.finish_us.size());
  for (size_t r = 0; r < s.finish_us.size(); ++r) scale(s.finish_us[r], a.result.finish_us[r]);
  // Both clusters number the resources of the small one's hosts alike, and give them in that order.
  std::vector<Simulation::Use> both;
  for (Simulation::Use& u : s.uses) {
    if (both.size() == a.result.uses.size()) break;
    const Simulation::Use& before = a.result.uses[both.size()];
    if (u.resource.name != before.resource.name) continue;
    scale(u.bytes, before.bytes);
    u.utilisation = u.bytes / (u.resource.gb_per_s * s.time_us * 1e3);
    both.push_back(std::move(u));
  }
  s.uses = std::move(both);
  s.busiest = -1;
  for (size_t i = 0; i < s.uses.size(); ++i)
    if (s.busiest < 0 || s.uses[i].utilisation > s.uses[static_cast<size_t>(s.busiest)].utilisation)
      s.busiest = static_cast<int>(i);
  s.algbw = data_bytes(whole.coll, ranks, call.count, call.element_bytes) / (s.time_us * 1e3);
  s.busbw = s.algbw * bus_factor(whole.coll, ranks);
  return s;
}

}  // namespace muster
