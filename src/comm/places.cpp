#include "comm/places.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "algorithms/algorithms.h"
#include "base/text.h"
#include "comm/plan_options.h"
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

constexpr size_t kPutSlotBytes = 64 << 10;  // of one-sided calls to other hosts

// Ranks of a communicator that share cores.
struct Machine {
  std::set<int> cpus;
  double quota = 0;
  int ranks = 0;
  std::map<int, int> ranks_of_host;

  void add(const Profile& p) {
    cpus.insert(p.cpus.begin(), p.cpus.end());
    if (p.quota > 0 && (quota == 0 || p.quota < quota)) quota = p.quota;
    ++ranks;
    ++ranks_of_host[p.memory];
  }
  // That they may use together.
  double cores() const {
    const auto n = static_cast<double>(std::max<size_t>(1, cpus.size()));
    return quota > 0 ? std::min(n, quota) : n;
  }
};

std::map<int, Machine> machines_of(const Impl& comm) {
  std::map<int, Machine> all;
  for (int r = 0; r < comm.size; ++r) all[profile_of(comm, r).machine].add(profile_of(comm, r));
  return all;
}

// Of the host that has fewest; hosts on one machine have a share of its cores each.
int least_cores(const std::map<int, Machine>& machines) {
  double least = HUGE_VAL;
  for (const auto& [number, m] : machines)
    for (const auto& [host, ranks] : m.ranks_of_host) least = std::min(least, m.cores() * ranks / m.ranks);
  return std::max(1, static_cast<int>(least));
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

bool rdma_allowed(const Options& options) {
  return !options.flag("NCCL_IB_DISABLE") && lower(options.text("NCCL_NET")) != "socket";
}

}  // namespace

void take_places(Impl& comm) {
  PlanInputs& in = comm.inputs;
  in.nranks = comm.size;
  in.same_process = true;
  in.tuned = comm.family->tuning.constants;
  in.cache_bytes = SIZE_MAX;
  in.windows = in.host_windows = true;
  const Profile &mine = profile_of(comm, comm.rank), &first = profile_of(comm, 0);
  comm.ranks.resize(static_cast<size_t>(comm.size));
  for (int r = 0; r < comm.size; ++r) {
    const Profile& p = profile_of(comm, r);
    Impl::Rank& k = comm.ranks[static_cast<size_t>(r)];
    k.host = p.host;
    k.pid = p.pid;
    k.start = p.start;
    k.here = p.memory == mine.memory;
    k.same_process = k.here && p.process == mine.process;
    in.same_process = in.same_process && p.memory == first.memory && p.process == first.process;
    in.windows = in.windows && p.memory == first.memory && p.arena != 0;
    in.host_windows = in.host_windows && p.arena != 0;
    in.cache_bytes = std::min(in.cache_bytes, p.cache);
  }
  in.placement = placement_in(comm);
  if (in.placement && comm.family->network) fit_to_network(comm.options, comm.family->network_slot_bytes, in);
  if (in.placement) in.network = network_between(*comm.family->hosts.cluster, rdma_allowed(comm.options));
  const std::map<int, Machine> machines = machines_of(comm);
  in.cores = least_cores(machines);
  const Machine& here = machines.at(mine.machine);
  comm.wait = WaitPolicy::choose(comm.options.text("MUSTER_WAIT"), here.ranks, here.cores());
}

void publish_in(Impl& comm, std::shared_ptr<Segment> segment) {
  comm.segment = std::move(segment);
  std::vector<int> places;
  int here = 0;
  for (const Impl::Rank& k : comm.ranks) places.push_back(k.here ? here++ : Published::kElsewhere);
  const int own = places[static_cast<size_t>(comm.rank)];
  comm.shown = std::make_unique<Published>(comm.segment, std::move(places));
  comm.own_control = &comm.control(comm.rank);
  std::unique_ptr<NetworkTransport> far;
  std::unique_ptr<FarPuts> puts;
  if (comm.shown->spans_hosts()) {
    far = std::make_unique<NetworkTransport>(
        *comm.family->network, comm.id, comm.family_ranks,
        NetworkTransport::Lanes{comm.inputs.lanes + 1, comm.inputs.slot_bytes, comm.inputs.message_bytes}, &comm.own_control->doorbell);
    puts = std::make_unique<FarPuts>(*comm.family->network, *comm.shown,
                                     FarPuts::Connections{comm.id, comm.family_ranks, comm.inputs.lanes + 1, kPutSlotBytes, &comm.own_control->doorbell});
  }
  comm.transport = std::make_unique<HostsTransport>(*comm.shown, std::make_unique<ShmTransport>(comm.segment, own), std::move(far), std::move(puts));
}

int first_free_lane(const Impl& comm) { return comm.inputs.lanes + 2; }

Segment::Geometry segment_geometry(const Impl& comm) {
  const auto here = std::ranges::count_if(comm.ranks, [](const Impl::Rank& k) { return k.here; });
  return {static_cast<int>(here), comm.inputs.lanes + 1, comm.inputs.slot_bytes, comm.inputs.message_bytes};
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

namespace {

std::unique_ptr<CompiledPlan> make_exchange(const Impl& comm, uint64_t bytes, const Program& program) {
  constexpr uint64_t kMostBytesOfMessage = 512;  // any slot holds them
  Choice choice;
  choice.algorithm = find_algorithm(Coll::all_gather, "direct");
  choice.tile_bytes = std::min(bytes, kMostBytesOfMessage);
  const CallShape shape{Coll::all_gather, DataType::uint8, RedOp::sum, 0, bytes};
  return std::make_unique<CompiledPlan>(compile(program, shape, choice, comm.transport.get()));
}

}  // namespace

std::unique_ptr<CompiledPlan> make_exchange(const Impl& comm, uint64_t bytes) {
  return make_exchange(comm, bytes, find_algorithm(Coll::all_gather, "direct")->make({comm.size, comm.rank, 0}));
}

void prepare_windows(Impl& comm, bool inside_hosts) {
  constexpr uint64_t kDescriptorBytes = 24;
  if (inside_hosts)
    comm.host_exchange = make_exchange(comm, kDescriptorBytes, host_all_gather({comm.size, comm.rank, 0, comm.inputs.placement.get()}));
  else
    comm.exchange = make_exchange(comm, kDescriptorBytes);
}

}  // namespace muster
