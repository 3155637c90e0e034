// Collectives with a configuration of their own: it is checked, then they are the plain ones.
#include "nccl/config.h"
#include "nccl/entries.h"
#include "nccl/last_error.h"

namespace muster::nccl {
namespace {

template <class Plain>
ncclResult_t with_config(const ncclCollConfig_t* config, Plain plain) {
  const ncclResult_t checked = call([&] { check_config(config); });
  return checked == ncclSuccess ? plain() : checked;
}

}  // namespace

ncclResult_t AllReduceConfig(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, [&] { return AllReduce(send, recv, count, type, op, comm, stream); });
}
ncclResult_t ReduceConfig(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                          int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, [&] { return Reduce(send, recv, count, type, op, root, comm, stream); });
}
ncclResult_t BroadcastConfig(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, [&] { return Broadcast(send, recv, count, type, root, comm, stream); });
}
ncclResult_t ReduceScatterConfig(const void* send, void* recv, size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config) {
  return with_config(config, [&] { return ReduceScatter(send, recv, count, type, op, comm, stream); });
}
ncclResult_t AllGatherConfig(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                             cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, [&] { return AllGather(send, recv, count, type, comm, stream); });
}
ncclResult_t AlltoAllConfig(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                            cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, [&] { return AlltoAll(send, recv, count, type, comm, stream); });
}
ncclResult_t GatherConfig(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, [&] { return Gather(send, recv, count, type, root, comm, stream); });
}
ncclResult_t ScatterConfig(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, [&] { return Scatter(send, recv, count, type, root, comm, stream); });
}

}  // namespace muster::nccl
