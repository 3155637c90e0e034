#include "plan/scaled_simulation.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/bandwidth.h"

namespace muster {

namespace {

// What of a program tells how it grows with the cluster.
struct Growth {
  double steps = 0;              // of the longest channel, one after the other
  size_t pieces = 0, peers = 0;  // of one step, at most
};
Growth growth_of(const Program& p) {
  Growth g;
  for (const Channel& c : p.channels) {
    size_t steps = 0;
    for (const Loop& l : c.loops) {
      steps += l.steps.size();
      for (const Step& s : l.steps) {
        const auto remote = [](const Ref& r) { return r.kind != Ref::Kind::local; };
        const auto peers = [&](const std::vector<Ref>& refs) {
          return static_cast<size_t>(std::count_if(refs.begin(), refs.end(), remote));
        };
        g.pieces = std::max<size_t>(g.pieces, s.pieces);
        g.peers = std::max({g.peers, peers(s.sources), peers(s.destinations)});
      }
    }
    g.steps = std::max(g.steps, static_cast<double>(steps));
  }
  return g;
}

// Of all ranks and tiles, if all do as this one does.
double steps_of_all(const Program& p, int ranks, const SimCall& call, const SimOptions& options) {
  const double parts = splits_count(p.coll) ? p.chunks : 1;
  double steps = 0;
  for (const Channel& c : p.channels) {
    const double bytes =
        static_cast<double>(call.count * call.element_bytes) / parts / c.parts / call.channels;
    double tiles = std::max(1.0, std::ceil(bytes / static_cast<double>(call.tile_bytes)));
    if (const auto most = static_cast<double>(options.most_tiles); most > 0 && tiles > most)
      tiles = most + most / 2;
    for (const Loop& l : c.loops) steps += tiles * static_cast<double>(l.steps.size());
  }
  return steps * ranks;
}

// What time may lie off a straight line.
constexpr double kEven = 0.002;

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
  const auto run = [&](const SimulatedNetwork& n, const SimCall& c) {
    return simulate([&](int rank) { return cluster.program(n.ranks(), rank); }, c, n, costs, options);
  };
  if (cluster.hosts <= cluster.large) return run(cluster.network(cluster.hosts), call);

  const SimulatedNetwork large = cluster.network(cluster.large), little = cluster.network(cluster.small);
  const int per_host = large.ranks() / cluster.large, ranks = per_host * cluster.hosts;
  if (per_host * cluster.large != large.ranks() || per_host * cluster.small != little.ranks())
    fail(Result::invalid_argument, "{} ranks on {} hosts and {} on {}: hosts must have as many each",
         little.ranks(), cluster.small, large.ranks(), cluster.large);
  const Program whole = cluster.program(ranks, 0);
  const double all_steps = steps_of_all(whole, ranks, call, options);
  if (all_steps <= cluster.most_steps) return run(cluster.network(cluster.hosts), call);

  const auto sample = [&](const SimulatedNetwork& n) {
    const Program p = cluster.program(n.ranks(), 0);
    SimCall c = call;
    // Its chunks are as long as the whole cluster's.
    if (splits_count(p.coll))
      c.count = static_cast<uint64_t>(static_cast<double>(call.count) * p.chunks / whole.chunks);
    return Sample{run(n, c), growth_of(p).steps};
  };
  const auto refuse = [&](const char* why) {
    fail(Result::invalid_argument,
         "{} {} on {} hosts has {:.3g} steps, more than {:.3g}, and can't be scaled from {} hosts: {}",
         whole.algorithm, name_of(whole.coll), cluster.hosts, all_steps, cluster.most_steps, cluster.large,
         why);
  };
  const Growth in_whole = growth_of(whole), in_large = growth_of(cluster.program(large.ranks(), 0)),
               in_little = growth_of(cluster.program(little.ranks(), 0));
  for (const Growth& g : {in_large, in_little})
    if (g.pieces != in_whole.pieces || g.peers != in_whole.peers)
      refuse("its messages, or the peers of a step, grow with the cluster");
  const bool passes_hosts = in_whole.steps == in_large.steps && in_large.steps == in_little.steps;
  if (!passes_hosts && (in_whole.steps <= in_large.steps || in_large.steps <= in_little.steps))
    refuse("its ranks' steps don't grow evenly");

  Sample a = sample(little), b = sample(large);
  double steps = in_whole.steps;
  if (passes_hosts) {
    a.steps = cluster.small;
    b.steps = cluster.large;
    steps = cluster.hosts;
    const int middle = (cluster.small + cluster.large) / 2;
    const Sample m = sample(cluster.network(middle));
    const double expected = a.result.time_us + (b.result.time_us - a.result.time_us) *
                                                   (middle - cluster.small) / (cluster.large - cluster.small);
    if (std::abs(m.result.time_us / expected - 1) > kEven) refuse("its time doesn't grow evenly with them");
    b.result.steps += m.result.steps;
  }
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
