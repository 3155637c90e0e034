// Collectives with a configuration of their own: they are the plain ones, with a wish of algorithms.
#include "nccl/collectives.h"
#include "nccl/entries.h"
#include "nccl/last_error.h"

namespace muster::nccl {
namespace {

ncclResult_t with_config(const ncclCollConfig_t* config, Coll coll, const void* send, void* recv,
                         size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                         cudaStream_t stream) {
  AlgorithmWish wish;
  const ncclResult_t checked = call([&] { wish = parse_config(config); });
  if (checked != ncclSuccess) return checked;
  return collective_with(wish, coll, send, recv, count, type, op, root, comm, stream);
}

}  // namespace

ncclResult_t AllReduceConfig(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, Coll::all_reduce, send, recv, count, type, op, 0, comm, stream);
}
ncclResult_t ReduceConfig(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                          int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, Coll::reduce, send, recv, count, type, op, root, comm, stream);
}
ncclResult_t BroadcastConfig(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, Coll::broadcast, send, recv, count, type, ncclSum, root, comm, stream);
}
ncclResult_t ReduceScatterConfig(const void* send, void* recv, size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config) {
  return with_config(config, Coll::reduce_scatter, send, recv, count, type, op, 0, comm, stream);
}
ncclResult_t AllGatherConfig(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                             cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, Coll::all_gather, send, recv, count, type, ncclSum, 0, comm, stream);
}
ncclResult_t AlltoAllConfig(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                            cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, Coll::all_to_all, send, recv, count, type, ncclSum, 0, comm, stream);
}
ncclResult_t GatherConfig(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, Coll::gather, send, recv, count, type, ncclSum, root, comm, stream);
}
ncclResult_t ScatterConfig(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  return with_config(config, Coll::scatter, send, recv, count, type, ncclSum, root, comm, stream);
}

}  // namespace muster::nccl
