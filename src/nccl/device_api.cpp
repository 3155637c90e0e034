// What NCCL has for GPU kernels that communicate. Sets of ranks and where their windows are mean something on host memory;
// resources of kernels don't.
#include <algorithm>
#include <map>
#include <vector>

#include "base/error.h"
#include "comm/family.h"
#include "comm/state.h"
#include "comm/window.h"
#include "nccl/entries.h"
#include "nccl/last_error.h"
#include "nccl/registration.h"

namespace muster::nccl {
namespace {

using Impl = Communicator::Impl;

ncclResult_t refuse(const char* what) {
  return query([&] {
    fail(Result::invalid_usage,
         "{} serves GPU kernels that communicate by themselves, and there are none on host memory. Use the "
         "host calls: ncclAllReduce and the like",
         what);
  });
}

// f(communicator), or `otherwise` on an error.
template <class T, class F>
T answer(ncclComm_t comm, T otherwise, F f) {
  (void)query([&] { otherwise = f(require_made(comm).communicator); });
  return otherwise;
}

ncclTeam_t world(const Communicator& c) { return {c.size(), c.rank(), 1}; }

// `ranks` (ascending, this one among them) if they are equally far apart, `stride` if there is one; else this one alone.
ncclTeam_t team_of(const std::vector<int>& ranks, int rank, int stride) {
  if (ranks.size() > 1) stride = ranks[1] - ranks[0];
  for (size_t i = 1; i < ranks.size(); ++i)
    if (ranks[i] - ranks[i - 1] != stride) return {1, 0, 1};
  const auto at = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  return {static_cast<int>(ranks.size()), static_cast<int>(at), stride};
}

// By host, in the order of their first ranks: the ranks that load and store each other's memory.
std::vector<std::vector<int>> hosts_of(const Impl& comm) {
  std::vector<std::vector<int>> hosts;
  std::map<int, size_t> number;
  for (int r = 0; r < comm.size; ++r) {
    const int memory = comm.family->profiles[static_cast<size_t>(comm.family_ranks[static_cast<size_t>(r)])].memory;
    const auto [at, fresh] = number.emplace(memory, hosts.size());
    if (fresh) hosts.emplace_back();
    hosts[at->second].push_back(r);
  }
  return hosts;
}

std::vector<int> host_of(const std::vector<std::vector<int>>& hosts, int rank) {
  return *std::find_if(hosts.begin(), hosts.end(), [&](const std::vector<int>& h) { return std::binary_search(h.begin(), h.end(), rank); });
}

ncclTeam_t lsa(const Impl& comm) { return team_of(host_of(hosts_of(comm), comm.rank), comm.rank, 1); }

ncclTeam_t rail(const Impl& comm) {
  const std::vector<std::vector<int>> hosts = hosts_of(comm);
  const std::vector<int> mine = host_of(hosts, comm.rank);
  const auto before = static_cast<size_t>(std::find(mine.begin(), mine.end(), comm.rank) - mine.begin());
  std::vector<int> ranks;
  for (const std::vector<int>& h : hosts) {
    if (h.size() != mine.size()) return {1, 0, 1};
    ranks.push_back(h[before]);
  }
  return team_of(ranks, comm.rank, static_cast<int>(mine.size()));
}

const Window& require_window(ncclWindow_t window) {
  const WindowHandle* const found = g_windows.find(window);
  if (!found) fail(Result::invalid_argument, "{} is no window{}", fmt::ptr(window), g_windows.is_stale(window) ? " any more" : "");
  return found->window;
}

void* place_in(const Window& w, size_t offset, int rank) {
  const size_t bytes = w.size(rank);
  if (offset > bytes) fail(Result::invalid_argument, "offset {} is beyond the {} bytes of rank {}'s part of the window", offset, bytes, rank);
  void* const base = w.data(rank);
  return base ? static_cast<std::byte*>(base) + offset : nullptr;
}

int rank_in_world(const Communicator& c, ncclTeam_t team, int rank) {
  if (rank < 0 || rank >= team.nRanks)
    fail(Result::invalid_argument, "rank {} is not in the team's 0..{}", rank, team.nRanks - 1);
  const int result = c.rank() + (rank - team.rank) * team.stride;
  if (result < 0 || result >= c.size())
    fail(Result::invalid_argument,
         "rank {} of the team ({} ranks, this one {}, stride {}) would be rank {} of {}", rank, team.nRanks,
         team.rank, team.stride, result, c.size());
  return result;
}

}  // namespace

ncclResult_t DevCommCreate(ncclComm_t, const ncclDevCommRequirements_t*, ncclDevComm_t*) {
  return refuse("ncclDevCommCreate");
}
ncclResult_t DevCommDestroy(ncclComm_t, const ncclDevComm_t*) { return refuse("ncclDevCommDestroy"); }
ncclResult_t LsaBarrierCreateRequirement(ncclTeam_t, int, ncclLsaBarrierHandle_t*,
                                         ncclDevResourceRequirements_t*) {
  return refuse("ncclLsaBarrierCreateRequirement");
}
ncclResult_t GinBarrierCreateRequirement(ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle_t*,
                                         ncclDevResourceRequirements_t*) {
  return refuse("ncclGinBarrierCreateRequirement");
}
ncclResult_t LLA2ACreateRequirement(int, int, ncclLLA2AHandle_t*, ncclDevResourceRequirements_t*) {
  return refuse("ncclLLA2ACreateRequirement");
}
int LLA2ACalcSlots(int, int) {
  (void)refuse("ncclLLA2ACalcSlots");
  return 0;
}

ncclTeam_t TeamWorld(ncclComm_t comm) { return answer(comm, ncclTeam_t{}, world); }
ncclTeam_t TeamLsa(ncclComm_t comm) { return answer(comm, ncclTeam_t{}, [](const Communicator& c) { return lsa(*c.impl()); }); }
ncclTeam_t TeamRail(ncclComm_t comm) { return answer(comm, ncclTeam_t{}, [](const Communicator& c) { return rail(*c.impl()); }); }
int TeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  return answer(comm, -1, [&](const Communicator& c) { return rank_in_world(c, team, rank); });
}
int TeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  return answer(comm, -1, [&](const Communicator& c) {
    const ncclTeam_t here = lsa(*c.impl());
    const int steps = rank_in_world(c, team, rank) - c.rank(), number = here.rank + steps / here.stride;
    if (steps % here.stride != 0 || number < 0 || number >= here.nRanks)
      fail(Result::invalid_argument, "rank {} of the team isn't one of the {} ranks that share memory with rank {}", rank, here.nRanks, c.rank());
    return number;
  });
}

ncclResult_t GetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** pointer) {
  return query([&] {
    require_pointer(pointer, "outPtr");
    *pointer = place_in(require_window(window), offset, peer);
  });
}
ncclResult_t GetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsa_rank, void** pointer) {
  return query([&] {
    require_pointer(pointer, "outPtr");
    const Window& w = require_window(window);
    const Impl& comm = *w.impl()->comm;
    const ncclTeam_t here = lsa(comm);
    if (lsa_rank < 0 || lsa_rank >= here.nRanks) fail(Result::invalid_argument, "lsaRank {} is not in 0..{}", lsa_rank, here.nRanks - 1);
    *pointer = place_in(w, offset, comm.rank + (lsa_rank - here.rank) * here.stride);
  });
}
ncclResult_t GetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void** pointer) {
  return query([&] {
    require_pointer(pointer, "outPtr");
    const Window& w = require_window(window);
    (void)place_in(w, offset, w.impl()->comm->rank);
    *pointer = nullptr;
  });
}
ncclResult_t GetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle_t, void** pointer) {
  return GetLsaMultimemDevicePointer(window, offset, pointer);
}

}  // namespace muster::nccl
