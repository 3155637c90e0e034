#include "nccl/group.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/state.h"
#include "nccl/entries.h"
#include "nccl/last_error.h"
#include "nccl/simulate.h"

namespace muster::nccl {
namespace {

struct CGroup {
  int depth = 0;  // begun by ncclGroupStart on this thread
  ncclResult_t failure = ncclSuccess;
  std::vector<ncclComm_t> nonblocking;
};
thread_local CGroup t_group;

// The library forgets a group at its first error. It is begun again, so that what follows is collected, to be
// forgotten with it: were it run, it would wait for peers that the group has already failed.
void begin_again(int depth) {
  for (int i = 0; i < depth; ++i) group_start();
}

ncclResult_t progress_of_all(const std::vector<ncclComm_t>& comms) {
  for (const ncclComm_t handle : comms)
    if (CommHandle* comm = g_comms.find(handle);
        comm && comm->communicator.async_error() == Result::in_progress)
      return ncclInProgress;
  return ncclSuccess;
}

// Ends the innermost group. True: it was the outermost, and `whole` is what there was to say of it.
bool leave(CGroup& whole) {
  if (t_group.depth == 0)
    fail(Result::invalid_usage,
         "there is no group to end: ncclGroupStart wasn't called on this thread, or the group was ended "
         "already");
  if (--t_group.depth > 0) return false;
  whole = std::exchange(t_group, {});
  return true;
}

}  // namespace

void fail_group(ncclResult_t code) noexcept {
  if (t_group.depth == 0) return;
  if (t_group.failure == ncclSuccess) t_group.failure = code;
  abandon_group();
  begin_again(t_group.depth);
}

bool note_nonblocking(CommHandle& comm) {
  if (t_group.depth == 0) return false;
  const ncclComm_t handle = to_handle(comm);
  if (std::find(t_group.nonblocking.begin(), t_group.nonblocking.end(), handle) == t_group.nonblocking.end())
    t_group.nonblocking.push_back(handle);
  return true;
}

ncclResult_t GroupStart() {
  return call([] {
    group_start();
    ++t_group.depth;
  });
}

ncclResult_t GroupEnd() {
  ncclResult_t result = ncclSuccess;
  const ncclResult_t ended = call([&] {
    CGroup whole;
    if (!leave(whole)) {
      group_end();
    } else if (whole.failure != ncclSuccess) {
      abandon_group();
      result = whole.failure;
    } else {
      group_end();
      result = progress_of_all(whole.nonblocking);
    }
  });
  return ended == ncclSuccess ? result : ended;
}

namespace {

void require_initialised(const ncclSimInfo_t* info) {
  require_pointer(info, "simInfo");
  constexpr ncclSimInfo_t expected = NCCL_SIM_INFO_INITIALIZER;
  if (info->magic != expected.magic || info->size < sizeof expected)
    fail(Result::invalid_argument,
         "simInfo (size {}, magic {:#x}) wasn't initialised with NCCL_SIM_INFO_INITIALIZER", info->size,
         info->magic);
}

}  // namespace

ncclResult_t GroupSimulateEnd(ncclSimInfo_t* info) {
  ncclResult_t result = ncclSuccess;
  const ncclResult_t ended = call([&] {
    CGroup whole;
    if (!leave(whole)) {
      group_end();
      return;
    }
    const std::vector<Batch> streams = take_group();
    require_initialised(info);
    result = whole.failure;
    if (result == ncclSuccess) info->estimatedTime = static_cast<float>(estimate_microseconds(streams));
  });
  return ended == ncclSuccess ? result : ended;
}

}  // namespace muster::nccl
