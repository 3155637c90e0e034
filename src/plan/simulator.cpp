#include "plan/simulator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "plan/bandwidth.h"
#include "plan/flat_programs.h"
#include "plan/simulation_layout.h"
#include "plan/simulation_run.h"
#include "plan/symmetry.h"

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

void check(const SimulatedNetwork& network, const SimCosts& costs, const SimOptions& options) {
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

// What is simulated, before what is alike was made one.
struct All {
  std::vector<int> rank_of;  // by channel
  std::vector<std::vector<uint32_t>> routes;
  size_t resources;
};

All all_of(const FlatPrograms& programs, const SimulationLayout& layout) {
  All all{{}, layout.routes, layout.capacities.size()};
  for (const FlatChannel& c : programs.channels) all.rank_of.push_back(c.rank);
  return all;
}

[[noreturn]] void fail_stuck(const ProgramMaker& maker, const FlatPrograms& programs,
                             const SimulationRun& run) {
  const int channel = run.stuck();
  const FlatChannel& c = programs.channels[static_cast<size_t>(channel)];
  const SimulationRun::ChannelState& s = run.state(channel);
  const auto loop = static_cast<size_t>(s.loop - c.first_loop),
             step = static_cast<size_t>(s.at - programs.loops[s.loop].first);
  const Program p = maker(c.rank);
  fail(Result::internal_error,
       "{} {} of {} ranks waits for ever: rank {}, channel {}, loop {}, step {} ({}), tile {}, for {}",
       p.algorithm, name_of(p.coll), p.nranks, c.rank, c.number, loop, step,
       to_string(p.channels[static_cast<size_t>(c.number)].loops[loop].steps[step]), s.tile,
       run.waits_for(channel));
}

Simulation result(const SimulationRun& run, const All& all, const Symmetry& symmetry, const SimCall& call,
                  const SimulatedNetwork& network, const SimCosts& costs) {
  Simulation r;
  r.finish_us.assign(static_cast<size_t>(network.ranks()), microseconds(ticks(costs.launch_us)));
  for (size_t c = 0; c < all.rank_of.size(); ++c) {
    double& finish = r.finish_us[static_cast<size_t>(all.rank_of[c])];
    finish = std::max(finish, run.finish_us(symmetry.channel[c]));
  }
  for (const double f : r.finish_us) r.time_us = std::max(r.time_us, f);
  std::vector<double> carried(all.resources);
  for (size_t f = 0; f < all.routes.size(); ++f)
    for (const uint32_t i : all.routes[f]) carried[i] += run.carried(symmetry.flow[f]);
  const uint32_t shared = network.resources();
  for (uint32_t i = 0; i < carried.size(); ++i) {
    if (carried[i] == 0) continue;
    Simulation::Use use;
    use.resource = i < shared ? network.resource(i)
                              : Resource{Resource::Kind::core, topology::LinkKind::cpu,
                                         fmt::format("rank {}: copies", i - shared), costs.rank_gb_per_s};
    use.bytes = carried[i] * call.channels;
    r.uses.push_back(std::move(use));
  }
  r.steps = run.steps() * static_cast<uint64_t>(call.channels);
  r.log = run.log();
  return r;
}

}  // namespace

Simulation simulate(const ProgramMaker& maker, const SimCall& call, const SimulatedNetwork& network,
                    const SimCosts& costs, const SimOptions& options) {
  check(network, costs, options);
  FlatPrograms programs(maker, network.ranks(), call, costs, options.even_chunks);
  SimulationLayout layout(programs, call, network, costs);
  const All all = all_of(programs, layout);
  // A record is kept of each rank's steps.
  const Symmetry symmetry = options.log ? no_symmetry(programs, layout) : fold(programs, layout);
  const auto run = [&](uint64_t tiles) {
    SimulationRun r(programs, layout, costs, options, tiles);
    if (!r.run()) fail_stuck(maker, programs, r);
    return result(r, all, symmetry, call, network, costs);
  };
  const uint64_t tiles = programs.most_tiles();
  if (options.most_tiles == 0 || tiles <= options.most_tiles) {
    Simulation s = run(UINT64_MAX);
    rate(s, programs.coll(), network.ranks(), call);
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
  rate(s, programs.coll(), network.ranks(), call);
  return s;
}

Simulation simulate(std::span<const Program> programs, const SimCall& call, const SimulatedNetwork& network,
                    const SimCosts& costs, const SimOptions& options) {
  if (programs.size() != static_cast<size_t>(network.ranks()))
    fail(Result::invalid_argument, "{} programs for a network of {} ranks", programs.size(), network.ranks());
  return simulate([&](int rank) { return programs[static_cast<size_t>(rank)]; }, call, network, costs,
                  options);
}

}  // namespace muster
