#include "comm/gpu_setting.h"

#include "base/error.h"
#include "base/log.h"
#include "base/log_options.h"
#include "comm/gpu_watch.h"
#include "comm/host_topology.h"
#include "comm/places.h"
#include "topology/paths.h"
#include "topology/pci.h"
#include "transports/network.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;
using topology::PathClass;

// The farthest path by which GPUs may reach each other, as NCCL_P2P_LEVEL names it or, as in old settings,
// numbers it.
PathClass p2p_level(const std::string& text) {
  constexpr PathClass kNumbered[] = {PathClass::loc, PathClass::pix, PathClass::pxb, PathClass::phb,
                                     PathClass::sys};
  if (text.size() == 1 && text[0] >= '0' && text[0] <= '4') return kNumbered[text[0] - '0'];
  const auto level = topology::parse_path_class(text);
  if (!level)
    fail(
        Result::invalid_usage,
        "NCCL_P2P_LEVEL='{}': LOC, NVL, PIX, PXB, PHB or SYS, or 0 to 4 (LOC, PIX, PXB, PHB, SYS), is wanted",
        text);
  return *level;
}

// GPUs that the topology doesn't know count as far from each other.
PathClass path_between(const topology::Machine& m, const std::string& from, const std::string& to) {
  const auto a = topology::PciAddress::parse(from), b = topology::PciAddress::parse(to);
  if (a && b && *a == *b) return PathClass::loc;
  const int first = a ? m.find(*a) : topology::kNone, second = b ? m.find(*b) : topology::kNone;
  if (first == topology::kNone || second == topology::kNone) return PathClass::sys;
  return topology::paths_from(m, first)[static_cast<size_t>(second)].path_class;
}

bool sends_from_gpu(const Options& options, const Network& network) {
  if (options.integer("NCCL_NET_GDR_READ") != 1) return false;
  if (!network.reads_gpu_memory())
    log_once(
        {true, "NCCL_NET_GDR_READ",
         fmt::format(
             "NCCL_NET_GDR_READ=1 has no effect: the network {} doesn't read GPU memory. A network plugin "
             "(NCCL_NET_PLUGIN) whose devices take NCCL_PTR_CUDA does",
             network.name())});
  return network.reads_gpu_memory();
}

GpuNetwork network_of(Impl& comm) {
  if (!comm.shown || !comm.shown->spans_hosts()) return {};
  GpuNetwork n;
  n.network = comm.family->network.get();
  n.ranks = comm.family_ranks;
  n.first_lane = first_free_lane(comm);
  n.sends_from_gpu = sends_from_gpu(comm.options, *n.network);
  n.progress = [&comm] { return comm.progress_network(); };
  n.fail = [&comm](const Error& e) {
    comm.set_error(e.code(), fmt::format("communicator {}: {}", comm.name, e.what()), true);
  };
  n.failed = [&comm] { return comm.failed(); };
  n.patience = comm.options.seconds("MUSTER_LINK_TIMEOUT");
  return n;
}

// One rank's family has looked at no topology, and needs none.
void set_cluster(const Impl& comm, GpuSetting& s) {
  const AgreedCluster& agreed = comm.family->hosts;
  s.cluster = agreed.cluster ? agreed.cluster : std::make_shared<const topology::Cluster>();
  for (const int r : comm.family_ranks)
    s.host_of.push_back(agreed.cluster ? agreed.host_of[static_cast<size_t>(r)] : 0);
}

void say_planned(const Impl& comm, const CallShape& call, const GpuChoice& choice) {
  const std::string text = to_string(call);
  const std::string how = describe(text, comm.size, choice);
  log_info(Topic::tuning, "communicator {}: {}", comm.name, how);
  if (comm.report)
    comm.report->row(text + " on GPUs", how, {choice.choice.algorithm->name, choice.us, {}}, {});
}

}  // namespace

GpuSetting gpu_setting(Impl& comm) {
  GpuSetting s;
  s.name = comm.name;
  s.communicator = comm.id;
  s.rank = comm.rank;
  for (int r = 0; r < comm.size; ++r) {
    const Impl::Rank& k = comm.ranks[static_cast<size_t>(r)];
    GpuPeer peer{comm.rank_name(r), k.same_process || r == comm.rank, k.here || r == comm.rank, {}};
    if (peer.same_process)
      peer.arena = {std::shared_ptr<void>(), Arena::of_process().base()};
    else if (k.arena)
      peer.arena = {k.arena, k.arena_base};
    s.peers.push_back(std::move(peer));
  }
  s.network = network_of(comm);
  s.gone = [&comm](int r) {
    return comm.control(r).left.load(std::memory_order_acquire) != 0 || comm.has_ended(r);
  };
  set_cluster(comm, s);
  s.protocols = comm.options.text("NCCL_PROTO");
  if (comm.tuner)
    s.tune = [tuner = comm.tuner.get()](const CallShape& call, const GpuPlanInputs& inputs,
                                        const std::string& protocols) {
      return tuner->tuned_on_gpus(call, inputs, protocols);
    };
  s.planned = [&comm](const CallShape& call, const GpuChoice& choice) { say_planned(comm, call, choice); };
  const std::string level = comm.options.text("NCCL_P2P_LEVEL");
  if (comm.options.flag("NCCL_P2P_DISABLE")) {
    s.p2p_refusal = [](const std::string&, const std::string&) { return std::string("NCCL_P2P_DISABLE=1"); };
  } else if (level.empty()) {
    s.p2p_refusal = [](const std::string&, const std::string&) { return std::string(); };
  } else {
    s.p2p_refusal = [machine = host_topology(comm.options), limit = p2p_level(level)](const std::string& from,
                                                                                      const std::string& to) {
      const PathClass path = path_between(machine, from, to);
      if (path <= limit) return std::string();
      return fmt::format("their path is {}, and NCCL_P2P_LEVEL allows {}", name_of(path), name_of(limit));
    };
  }
  return s;
}

GpuRank& require_gpu_rank(Impl& comm) {
  if (!comm.gpu_owner) {
    comm.gpu_owner = gpu_library()->make_rank(gpu_setting(comm), comm.inputs, comm.gpu_device);
    comm.gpu.store(comm.gpu_owner.get());
    if (comm.failed()) comm.gpu_owner->abort();
    GpuWatch::of_process().add(comm);
  }
  return *comm.gpu_owner;
}

}  // namespace muster
