#include "plan_run.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "plan/scaled_simulation.h"

namespace muster::tool {

PlanRun::PlanRun(const topology::Cluster& cluster, std::span<const RankPlace> places,
                 const Prediction& prediction, const Candidate& candidate, int cross_nic)
    : prediction_(prediction), candidate_(candidate), cross_nic_(cross_nic) {
  if (!candidate.known) fail(Result::invalid_argument, "{} has no program", candidate.algorithm);
  whole_ = job_on(cluster, {places.begin(), places.end()});
  distinct_ = distinct_channels();
}

PlanRun::Job PlanRun::job_on(topology::Cluster cluster, std::vector<RankPlace> places) const {
  Job job{std::move(cluster), std::move(places), {}};
  std::vector<int> hosts;
  for (const RankPlace& p : job.places) hosts.push_back(p.host);
  job.placement = placement_of(hosts);
  if (candidate_.known->along_rings)
    job.placement.rings = orders_of(rings_of_channels(job.cluster, job.places, candidate_.channels, cross_nic_));
  return job;
}

int PlanRun::distinct_channels() const {
  const int channels = candidate_.channels;
  int distinct = 1;
  if (const auto& orders = whole_.placement.rings; !orders.empty()) {
    const auto repeats_after = [&](size_t d) {
      for (size_t c = d; c < orders.size(); ++c)
        if (orders[c] != orders[c - d]) return false;
      return true;
    };
    while (channels % distinct != 0 || !repeats_after(static_cast<size_t>(distinct))) ++distinct;
    return distinct;
  }
  // Some begin with another peer in each channel. Few ranks show it; a mesh of 8 has links for 7.
  constexpr int kLinks = 7;
  const auto of_channel = [&](int rank, int channel) {
    return candidate_.known->make(
        {static_cast<int>(whole_.places.size()), rank, prediction_.call.root, &whole_.placement, channel});
  };
  const int ranks = std::min(static_cast<int>(whole_.places.size()), kLinks + 1);
  for (int r = 0; r < ranks && channels > 1; ++r) {
    if (of_channel(r, 0) == of_channel(r, 1)) continue;
    while (channels % distinct != 0 || distinct < std::min(channels, kLinks)) ++distinct;
    break;
  }
  return distinct;
}

PlanRun::Job PlanRun::job_on_hosts(int hosts) const {
  topology::Cluster cluster = whole_.cluster;
  cluster.hosts.front().count = hosts;
  const int per_host = prediction_.links.spread.per_host;
  return job_on(std::move(cluster), {whole_.places.begin(), whole_.places.begin() + hosts * per_host});
}

Program PlanRun::program_of(const Job& job, int rank, int channels) const {
  return make_program(*candidate_.known,
                      {static_cast<int>(job.places.size()), rank, prediction_.call.root, &job.placement},
                      channels);
}

Program PlanRun::program(int rank) const { return program_of(whole_, rank, candidate_.channels); }

Simulation PlanRun::simulate(const Constants& k, int per_thread, bool trace, uint64_t most_tiles) const {
  SimCall sim;
  sim.count = prediction_.call.count;
  sim.element_bytes = size_of(prediction_.call.type);
  sim.tile_bytes = candidate_.chunk_bytes;
  // Of channels that do alike one is run, and stands for all.
  const int channels = trace ? candidate_.channels : distinct_;
  sim.channels = candidate_.channels / channels;
  SimOptions options;
  options.log = trace;
  options.most_tiles = most_tiles;
  options.even_chunks = !trace && prediction_.links.spread.ranks > kMostUneven;
  const SimCosts costs = sim_costs(prediction_.links, candidate_.protocol, k, per_thread);

  const Spread& spread = prediction_.links.spread;
  if (spread.ranks <= kMostExact)
    return muster::simulate([&](int rank) { return program_of(whole_, rank, channels); }, sim,
                            SimulatedNetwork(whole_.cluster, whole_.places), costs, options);
  if (trace)
    fail(Result::invalid_argument, "--trace is for up to {} ranks, and these are {}: --ranks N takes fewer",
         kMostExact, spread.ranks);
  if (whole_.cluster.hosts.size() != 1 || spread.per_host * spread.hosts != spread.ranks)
    fail(Result::invalid_argument,
         "more than {} ranks are simulated by fewer hosts, so these must be alike and full: --ranks N takes "
         "fewer",
         kMostExact);
  // Two leaves where there are several, so that the small clusters have a spine as well.
  const int leaf = std::max(16, whole_.cluster.fabric.hosts_per_leaf);
  std::map<int, Job> jobs;  // by ranks
  const auto job_of = [&](int hosts) -> const Job& {
    return jobs.try_emplace(hosts * spread.per_host, job_on_hosts(hosts)).first->second;
  };
  ScaledCluster scaled;
  scaled.hosts = spread.hosts;
  scaled.small = leaf + leaf / 2;
  scaled.large = 2 * leaf;
  scaled.network = [&](int hosts) {
    const Job& job = job_of(hosts);
    return SimulatedNetwork(job.cluster, job.places);
  };
  scaled.program = [&](int nranks, int rank) {
    return program_of(nranks == spread.ranks ? whole_ : job_of(nranks / spread.per_host), rank, channels);
  };
  try {
    return simulate_scaled(scaled, sim, costs, options);
  } catch (const Error& e) {
    fail(e.code(), "{}. Up to {} ranks are simulated as they are: --ranks {}", e.what(), kMostExact,
         kMostExact / spread.per_host * spread.per_host);
  }
}

}  // namespace muster::tool
