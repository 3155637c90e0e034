#include "comm/places.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "algorithms/algorithms.h"
#include "plan/host_network.h"

namespace muster {

using Impl = Communicator::Impl;

uint64_t process_token() {
  static std::mutex mutex;
  static uint64_t token = 0;
  static int generation = -1;
  const std::lock_guard lock(mutex);
  if (token == 0 || generation != fork_generation()) {
    std::random_device device;
    token = (static_cast<uint64_t>(device()) << 32 | device()) | 1;
    generation = fork_generation();
  }
  return token;
}

namespace {

const Profile& profile_of(const Impl& comm, int rank) {
  return comm.family->profiles[static_cast<size_t>(comm.family_ranks[static_cast<size_t>(rank)])];
}

// Cores that the ranks may use together.
double usable_cores(const Impl& comm) {
  std::set<int> cpus;
  double quota = 0;
  for (int r = 0; r < comm.size; ++r) {
    const Profile& p = profile_of(comm, r);
    cpus.insert(p.cpus.begin(), p.cpus.end());
    if (p.quota > 0 && (quota == 0 || p.quota < quota)) quota = p.quota;
  }
  const auto n = static_cast<double>(std::max<size_t>(1, cpus.size()));
  return quota > 0 ? std::min(n, quota) : n;
}

// Null where all ranks are on one host.
std::shared_ptr<const Placement> placement_in(const Impl& comm) {
  const std::vector<int>& host_of = comm.family->hosts.host_of;
  if (host_of.empty()) return nullptr;
  std::vector<int> hosts;
  for (const int r : comm.family_ranks) hosts.push_back(host_of[static_cast<size_t>(r)]);
  Placement p = placement_of(hosts);
  if (std::ranges::all_of(p.host_of, [](int h) { return h == 0; })) return nullptr;
  if (!std::ranges::is_sorted(p.host_of)) p.rings = {host_by_host(p.host_of)};
  return std::make_shared<const Placement>(std::move(p));
}

}  // namespace

void take_places(Impl& comm) {
  PlanInputs& in = comm.inputs;
  in.nranks = comm.size;
  in.same_process = true;
  in.tuned = comm.family->tuning.constants;
  in.cache_bytes = SIZE_MAX;
  comm.ranks.resize(static_cast<size_t>(comm.size));
  for (int r = 0; r < comm.size; ++r) {
    const Profile& p = profile_of(comm, r);
    Impl::Rank& k = comm.ranks[static_cast<size_t>(r)];
    k.host = p.host;
    k.pid = p.pid;
    k.start = p.start;
    k.same_process = p.process == process_token();
    in.same_process = in.same_process && p.process == profile_of(comm, 0).process;
    in.cache_bytes = std::min(in.cache_bytes, p.cache);
  }
  in.placement = placement_in(comm);
  if (in.placement) in.network = network_between(*comm.family->hosts.cluster);
  const double cores = usable_cores(comm);
  in.cores = std::max(1, static_cast<int>(cores));
  comm.wait = WaitPolicy::choose(comm.options.text("MUSTER_WAIT"), comm.size, cores);
}

void start_tuner(Impl& comm) {
  if (!comm.family->tuner) return;
  std::map<int, int> on_host;
  for (const int r : comm.family_ranks)
    ++on_host[comm.family->hosts.host_of.empty() ? 0 : comm.family->hosts.host_of[static_cast<size_t>(r)]];
  TunerPlace place{comm.id, static_cast<size_t>(comm.size), on_host.size(), comm.size, 0};
  for (const auto& [host, ranks] : on_host) {
    place.least_on_host = std::min(place.least_on_host, ranks);
    place.most_on_host = std::max(place.most_on_host, ranks);
  }
  comm.tuner = std::make_unique<Tuner>(comm.family->tuner, place, comm.name);
}

void prepare_windows(Impl& comm) {
  constexpr uint64_t kDescriptorBytes = 24;
  Choice choice;
  choice.algorithm = find_algorithm(Coll::all_gather, "direct");
  choice.tile_bytes = kDescriptorBytes;
  const CallShape shape{Coll::all_gather, DataType::uint8, RedOp::sum, 0, kDescriptorBytes};
  comm.exchange = std::make_unique<CompiledPlan>(
      compile(choice.algorithm->make({comm.size, comm.rank, 0}), shape, choice, comm.transport.get()));
}

}  // namespace muster
