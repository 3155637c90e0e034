#include "plan/simulator.h"

#include <algorithm>

#include "base/error.h"
#include "plan/bandwidth.h"
#include "plan/flat_programs.h"
#include "plan/simulation_run.h"

namespace muster {

namespace {

// What follows from time and bytes.
void rate(Simulation& s, Coll coll, int nranks, const SimCall& call) {
  const double ns = s.time_us * 1e3;
  for (size_t i = 0; i < s.uses.size(); ++i) {
    Simulation::Use& u = s.uses[i];
    u.utilisation = ns > 0 ? u.bytes / (u.resource.gb_per_s * ns) : 0;
    if (s.busiest < 0 || u.utilisation > s.uses[static_cast<size_t>(s.busiest)].utilisation)
      s.busiest = static_cast<int>(i);
  }
  if (ns > 0) s.algbw = data_bytes(coll, nranks, call.count, call.element_bytes) / ns;
  s.busbw = s.algbw * bus_factor(coll, nranks);
}

void check(const Network& network, const SimCosts& costs, const SimOptions& options) {
  const auto refuse = [](const char* what, double value) {
    fail(Result::invalid_argument, "simulation with {} = {}", what, value);
  };
  for (const LinkCosts& l : costs.links)
    if (!(l.latency_us >= 0)) refuse("a link's latency_us", l.latency_us);
  if (!(costs.launch_us >= 0)) refuse("launch_us", costs.launch_us);
  if (!(costs.step_us >= 0)) refuse("step_us", costs.step_us);
  if (!(costs.channel_gb_per_s > 0)) refuse("channel_gb_per_s", costs.channel_gb_per_s);
  if (!(costs.rank_gb_per_s > 0)) refuse("rank_gb_per_s", costs.rank_gb_per_s);
  if (!(costs.combine_work >= 0)) refuse("combine_work", costs.combine_work);
  if (costs.slots < 1) refuse("slots", costs.slots);
  if (options.most_tiles == 1) refuse("most_tiles", 1);
  if (network.ranks() < 1) refuse("ranks", network.ranks());
}

}  // namespace

Simulation simulate(const ProgramMaker& maker, const SimCall& call, const Network& network,
                    const SimCosts& costs, const SimOptions& options) {
  check(network, costs, options);
  const int n = network.ranks();
  const FlatPrograms programs(maker, n, call, costs);
  const auto run = [&](uint64_t tiles) {
    SimulationRun r(programs, call, network, costs, options, tiles);
    if (!r.run()) {
      const int channel = r.stuck();
      const FlatChannel& c = programs.channels[static_cast<size_t>(channel)];
      const SimulationRun::ChannelState& s = r.state(channel);
      const auto loop = static_cast<size_t>(s.loop - c.first_loop),
                 step = static_cast<size_t>(s.at - programs.loops[s.loop].first);
      const Program p = maker(c.rank);
      fail(Result::internal_error,
           "{} {} of {} ranks waits for ever: rank {}, channel {}, loop {}, step {} ({}), tile {}, for {}",
           p.algorithm, name_of(p.coll), n, c.rank, c.number, loop, step,
           to_string(p.channels[static_cast<size_t>(c.number)].loops[loop].steps[step]), s.tile,
           r.waits_for(channel));
    }
    return r.result();
  };
  const uint64_t tiles = programs.most_tiles();
  if (options.most_tiles == 0 || tiles <= options.most_tiles) {
    Simulation s = run(UINT64_MAX);
    rate(s, programs.coll(), n, call);
    return s;
  }
  // What more tiles add, tile by tile, is what the second half of those that were run has added.
  const uint64_t half = options.most_tiles / 2;
  const Simulation before = run(half);
  Simulation s = run(options.most_tiles);
  const double more =
      programs.tiles_beyond(options.most_tiles) / static_cast<double>(options.most_tiles - half);
  s.extrapolated = true;
  s.steps += before.steps;
  s.time_us += (s.time_us - before.time_us) * more;
  for (size_t r = 0; r < s.finish_us.size(); ++r)
    s.finish_us[r] += (s.finish_us[r] - before.finish_us[r]) * more;
  for (size_t i = 0; i < s.uses.size(); ++i)
    s.uses[i].bytes += (s.uses[i].bytes - before.uses[i].bytes) * more;
  rate(s, programs.coll(), n, call);
  return s;
}

Simulation simulate(std::span<const Program> programs, const SimCall& call, const Network& network,
                    const SimCosts& costs, const SimOptions& options) {
  if (programs.size() != static_cast<size_t>(network.ranks()))
    fail(Result::invalid_argument, "{} programs for a network of {} ranks", programs.size(), network.ranks());
  return simulate([&](int rank) { return programs[static_cast<size_t>(rank)]; }, call, network, costs,
                  options);
}

}  // namespace muster
