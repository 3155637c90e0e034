// Making and ending communicators.
#include <unordered_set>

#include "base/error.h"
#include "nccl/config.h"
#include "nccl/entries.h"
#include "nccl/last_error.h"

namespace muster::nccl {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId));

UniqueId to_id(const ncclUniqueId& id) {
  UniqueId result;
  std::copy(std::begin(id.internal), std::end(id.internal), result.internal);
  return result;
}
void from_id(const UniqueId& id, ncclUniqueId* result) {
  std::copy(std::begin(id.internal), std::end(id.internal), result->internal);
}

// *out = make(), or NULL if that fails. A communicator that goes on being made in the background is in
// progress.
template <class Make>
ncclResult_t make_comm(ncclComm_t* out, const char* argument, Make make) noexcept {
  const ncclResult_t result = call([&] {
    require_pointer(out, argument);
    *out = nullptr;
    *out = open_comm(make());
  });
  if (result != ncclSuccess || !*out) return result;
  CommHandle& comm = *g_comms.find(*out);
  return comm.blocking ? ncclSuccess : progress_of(comm);
}

}  // namespace

ncclResult_t GetUniqueId(ncclUniqueId* id) {
  return query([&] {
    require_pointer(id, "uniqueId");
    from_id(make_unique_id(), id);
  });
}

ncclResult_t CommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                ncclConfig_t* config) {
  return make_comm(comm, "comm",
                   [&] { return Communicator::init(nranks, rank, to_id(id), parse_config(config)); });
}

ncclResult_t CommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  return CommInitRankConfig(comm, nranks, id, rank, nullptr);
}

ncclResult_t CommInitRankScalable(ncclComm_t* comm, int nranks, int rank, int n_ids, ncclUniqueId* ids,
                                  ncclConfig_t* config) {
  return make_comm(comm, "newcomm", [&] {
    require_pointer(ids, "commIds");
    if (n_ids < 1 || n_ids > nranks)
      fail(Result::invalid_argument, "nId {}: 1 to nranks ({}) ids are possible", n_ids, nranks);
    std::vector<UniqueId> all;
    for (int i = 0; i < n_ids; ++i) all.push_back(to_id(ids[i]));
    return Communicator::init(nranks, rank, all, parse_config(config));
  });
}

ncclResult_t CommInitAll(ncclComm_t* comms, int n, const int* devices) {
  return call([&] {
    require_pointer(comms, "comm");
    if (n < 1) fail(Result::invalid_argument, "ndev {}: 1 or more are possible", n);
    for (int i = 0; devices && i < n; ++i)
      if (devices[i] < 0)
        fail(Result::invalid_argument, "devlist[{}] is {}: device numbers are 0 or more", i, devices[i]);
    std::fill(comms, comms + n, nullptr);
    std::vector<Communicator> made = Communicator::init_all(n);
    for (int i = 0; i < n; ++i)
      comms[i] = open_comm(std::move(made[static_cast<size_t>(i)]), devices ? devices[i] : i);
  });
}

ncclResult_t CommSplit(ncclComm_t parent, int color, int key, ncclComm_t* comm, ncclConfig_t* config) {
  return make_comm(comm, "newcomm", [&] {
    CommHandle& p = require_comm(parent);
    return p.communicator.split(color, key, parse_config_of_child(config));
  });
}

ncclResult_t CommShrink(ncclComm_t parent, int* excluded, int n_excluded, ncclComm_t* comm,
                        ncclConfig_t* config, int flags) {
  return make_comm(comm, "newcomm", [&] {
    CommHandle& p = require_comm(parent);
    if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT)
      fail(Result::invalid_argument,
           "shrinkFlags {} is neither NCCL_SHRINK_DEFAULT (0) nor NCCL_SHRINK_ABORT (1)", flags);
    if (n_excluded < 1)
      fail(Result::invalid_argument, "excludeRanksCount {}: at least one rank must be excluded", n_excluded);
    require_pointer(excluded, "excludeRanksList");
    return p.communicator.shrink(std::span<const int>(excluded, static_cast<size_t>(n_excluded)),
                                 flags == NCCL_SHRINK_ABORT ? ShrinkMode::abort : ShrinkMode::finish,
                                 parse_config_of_child(config));
  });
}

ncclResult_t CommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  return query([&] {
    CommHandle& c = require_made(comm);
    require_pointer(id, "uniqueId");
    from_id(c.communicator.grow_id(), id);
  });
}

ncclResult_t CommGrow(ncclComm_t parent, int nranks, const ncclUniqueId* id, int rank, ncclComm_t* comm,
                      ncclConfig_t* config) {
  return make_comm(comm, "newcomm", [&] {
    if (!parent) {
      if (!id)
        fail(Result::invalid_argument,
             "comm and uniqueId are NULL: a new rank needs the id, a rank of the communicator that grows "
             "needs that");
      return Communicator::join(nranks, rank, to_id(*id), parse_config(config));
    }
    CommHandle& p = require_comm(parent);
    if (rank != -1)
      fail(Result::invalid_argument,
           "rank {}: ranks of the communicator that grows keep their number and must pass -1", rank);
    return p.communicator.grow(nranks, parse_config_of_child(config));
  });
}

ncclResult_t CommFinalize(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  return call_on(comm, [](CommHandle& c) { c.communicator.finalize(); });
}

ncclResult_t CommDestroy(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  return query([&] {
    CommHandle& c = require_comm(comm);
    c.communicator.destroy();
    close_comm(c);
  });
}

ncclResult_t CommAbort(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  return query([&] {
    CommHandle& c = require_comm(comm);
    c.communicator.abort();
    close_comm(c);
  });
}

ncclResult_t CommRevoke(ncclComm_t comm, int flags) {
  return query([&] {
    CommHandle& c = require_comm(comm);
    if (flags != NCCL_REVOKE_DEFAULT)
      fail(Result::invalid_argument, "revokeFlags {}: only NCCL_REVOKE_DEFAULT (0) is defined", flags);
    c.communicator.revoke();
  });
}

ncclResult_t CommSuspend(ncclComm_t comm, int flags) {
  return call_on(comm, [&](CommHandle& c) {
    if (flags != NCCL_SUSPEND_MEM)
      fail(Result::invalid_argument, "flags {}: NCCL_SUSPEND_MEM (1) is what can be suspended", flags);
    c.communicator.suspend();
  });
}

ncclResult_t CommResume(ncclComm_t comm) {
  return call_on(comm, [](CommHandle& c) { c.communicator.resume(); });
}

}  // namespace muster::nccl
