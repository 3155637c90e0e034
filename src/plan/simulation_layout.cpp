#include "plan/simulation_layout.h"

#include "base/error.h"

namespace muster {

uint32_t SimulationLayout::add_flow(std::vector<uint32_t> route, Flow flow) {
  routes.push_back(std::move(route));
  flows.push_back(flow);
  return static_cast<uint32_t>(flows.size() - 1);
}

SimulationLayout::SimulationLayout(const FlatPrograms& programs, const SimCall& call,
                                   const SimulatedNetwork& network, const SimCosts& costs) {
  const auto resources = network.resources();
  const int n = network.ranks();
  // All channels that one stands for share alike, so each has its part of what there is.
  const double share = 1.0 / call.channels;
  capacities.resize(resources);
  for (uint32_t r = 0; r < resources; ++r) capacities[r] = network.gb_per_s(r) * share;
  const bool own = costs.rank_gb_per_s < SimCosts::kUnlimited;
  if (own) capacities.insert(capacities.end(), static_cast<size_t>(n), costs.rank_gb_per_s * share);

  for (const FlatConnection& c : programs.connections) {
    const Route r = network.route(c.from, c.to);
    const LinkCosts& l = costs.links[static_cast<size_t>(r.link_class)];
    Connection s;
    s.latency = ticks(r.latency_us + l.latency_us);
    s.by_proxy = l.by_proxy;
    s.sender = c.sender;
    s.receiver = c.receiver;
    const auto number = static_cast<uint32_t>(connections.size());
    if (!r.resources.empty()) s.flow = add_flow(r.resources, {s.by_proxy ? number : c.sender, s.by_proxy});
    connections.push_back(s);
  }
  for (const FlatWindow& w : programs.window_paths) {
    Route r = network.route(w.from, w.to);
    window_flow.push_back(r.resources.empty() ? kNone : add_flow(std::move(r.resources), {w.channel}));
  }
  for (size_t c = 0; c < programs.channels.size(); ++c) {
    const int rank = programs.channels[c].rank;
    std::vector<uint32_t> work = network.work(rank);
    if (own) work.push_back(resources + static_cast<uint32_t>(rank));
    work_flow.push_back(work.empty() ? kNone : add_flow(std::move(work), {static_cast<uint32_t>(c)}));
  }
  for (const std::vector<uint32_t>& route : routes)
    for (const uint32_t r : route)
      if (!(capacities[r] > 0))
        fail(Result::invalid_argument, "{} is used, but its rate is unknown", network.resource(r).name);
}

}  // namespace muster
