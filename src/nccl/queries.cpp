// What the library and communicators say of themselves.
#include <cstring>

#include "base/error.h"
#include "comm/state.h"
#include "nccl/entries.h"
#include "nccl/last_error.h"

namespace muster::nccl {

ncclResult_t GetVersion(int* version) {
  return query([&] {
    require_pointer(version, "version");
    *version = NCCL_VERSION_CODE;
  });
}

const char* GetErrorString(ncclResult_t result) { return error_string(static_cast<Result>(result)); }

ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return query([&] {
    const CommHandle& c = require_comm(comm);
    require_pointer(state, "asyncError");
    *state = static_cast<ncclResult_t>(c.communicator.async_error());
  });
}

ncclResult_t CommCount(ncclComm_t comm, int* count) {
  return query([&] {
    const CommHandle& c = require_made(comm);
    require_pointer(count, "count");
    *count = c.communicator.size();
  });
}

ncclResult_t CommUserRank(ncclComm_t comm, int* rank) {
  return query([&] {
    const CommHandle& c = require_made(comm);
    require_pointer(rank, "rank");
    *rank = c.communicator.rank();
  });
}

ncclResult_t CommCuDevice(ncclComm_t comm, int* device) {
  return query([&] {
    const CommHandle& c = require_comm(comm);
    require_pointer(device, "device");
    *device = c.device;
  });
}

ncclResult_t CommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) {
  return query([&] {
    const CommHandle& c = require_made(comm);
    require_pointer(value, "value");
    const MemoryUse use = c.communicator.memory_use();
    switch (stat) {
      case ncclStatGpuMemSuspend:
        *value = use.suspended ? use.suspended : use.suspendable;
        return;
      case ncclStatGpuMemSuspended:
        *value = use.suspended != 0;
        return;
      case ncclStatGpuMemPersist:
        *value = use.persistent;
        return;
      case ncclStatGpuMemTotal:
        *value = use.total;
        return;
    }
    fail(Result::invalid_argument, "stat {} is not a statistic (0..{})", static_cast<int>(stat),
         static_cast<int>(ncclStatGpuMemTotal));
  });
}

ncclResult_t CommQueryProperties(ncclComm_t comm, ncclCommProperties_t* properties) {
  return query([&] {
    const CommHandle& c = require_made(comm);
    require_pointer(properties, "props");
    // As much as the caller's header knows; the first version of it ends with multimemSupport.
    constexpr size_t kLeast = offsetof(ncclCommProperties_t, ginType);
    if (properties->magic != NCCL_API_MAGIC || properties->size < kLeast)
      fail(Result::invalid_usage,
           "props (size {}, magic {:#x}) wasn't initialised with NCCL_COMM_PROPERTIES_INITIALIZER",
           properties->size, properties->magic);
    ncclCommProperties_t all = NCCL_COMM_PROPERTIES_INITIALIZER;
    all.size = properties->size;
    all.version = properties->version;
    all.rank = c.communicator.rank();
    all.nRanks = c.communicator.size();
    all.cudaDev = all.nvmlDev = c.device;
    all.nLsaTeams = 1;
    const PlanInputs& in = c.communicator.impl()->inputs;
    all.hostRmaSupport = in.same_process || in.windows;
    std::memcpy(properties, &all, std::min(properties->size, sizeof all));
  });
}

}  // namespace muster::nccl
