// What NCCL has for GPU kernels that communicate. Sets of ranks mean something on host memory; resources of
// kernels don't.
#include "base/error.h"
#include "nccl/entries.h"
#include "nccl/last_error.h"

namespace muster::nccl {
namespace {

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

// All ranks share a host, so each loads and stores the memory of all.
ncclTeam_t world(const Communicator& c) { return {c.size(), c.rank(), 1}; }

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
ncclTeam_t TeamLsa(ncclComm_t comm) { return answer(comm, ncclTeam_t{}, world); }
ncclTeam_t TeamRail(ncclComm_t comm) {
  return answer(comm, ncclTeam_t{}, [](const Communicator& c) { return ncclTeam_t{1, 0, c.size()}; });
}
int TeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  return answer(comm, -1, [&](const Communicator& c) { return rank_in_world(c, team, rank); });
}
int TeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) { return TeamRankToWorld(comm, team, rank); }

}  // namespace muster::nccl
