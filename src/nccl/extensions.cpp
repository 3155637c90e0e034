// muster.h's collectives.
#include "base/error.h"
#include "comm/state.h"
#include "muster.h"
#include "nccl/collectives.h"
#include "nccl/last_error.h"
#include "nccl/reduce_op.h"
#include "nccl/stream_handle.h"

namespace muster::nccl {
namespace {

// An entry per rank.
std::span<const size_t> per_rank(const CommHandle& comm, const size_t* entries, const char* argument) {
  require_pointer(entries, argument);
  return {entries, static_cast<size_t>(comm.communicator.size())};
}
// NULL: packed.
std::span<const size_t> displacements(const CommHandle& comm, const size_t* entries) {
  if (!entries) return {};
  return {entries, static_cast<size_t>(comm.communicator.size())};
}

ReduceOp complete_op(const CommHandle& comm, ncclRedOp_t op) {
  if (is_built_in(op)) return static_cast<RedOp>(op);
  const CustomOp custom = custom_op(comm, op);
  if (custom.device_scalar)
    fail(Result::invalid_argument,
         "operation {} has its scalar in device memory; musterReduceScatterV takes ncclScalarHostImmediate "
         "only",
         custom.number);
  return custom.op;
}

// Its count stands for what the counts are, until they are known.
Call call_of(Coll coll, const void* send, void* recv, ncclDataType_t type, const ReduceOp& op = {}) {
  return muster::call_of(coll, send, recv, send || recv ? 1 : 0, static_cast<DataType>(type), op);
}

}  // namespace
}  // namespace muster::nccl

using namespace muster::nccl;

extern "C" {

MUSTER_API ncclResult_t musterAllGatherV(const void* send, size_t send_count, void* recv,
                                         const size_t* recv_counts, const size_t* displs, ncclDataType_t type,
                                         ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    (void)require_made(comm);
    muster::Call call = call_of(muster::Coll::all_gather_v, send, recv, type);
    muster::HostStream* const on = place(call, c, stream);
    submit_all_gather_v(c.communicator.impl(), call, send_count, per_rank(c, recv_counts, "recvcounts"),
                        displacements(c, displs), on);
  });
}

MUSTER_API ncclResult_t musterReduceScatterV(const void* send, void* recv, const size_t* recv_counts,
                                             ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                             cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    (void)require_made(comm);
    muster::Call call = call_of(muster::Coll::reduce_scatter_v, send, recv, type, complete_op(c, op));
    muster::HostStream* const on = place(call, c, stream);
    submit_reduce_scatter_v(c.communicator.impl(), call, per_rank(c, recv_counts, "recvcounts"), on);
  });
}

MUSTER_API ncclResult_t musterAlltoAllV(const void* send, const size_t* send_counts,
                                        const size_t* send_displs, void* recv, const size_t* recv_counts,
                                        const size_t* recv_displs, ncclDataType_t type, ncclComm_t comm,
                                        cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    (void)require_made(comm);
    muster::Call call = call_of(muster::Coll::all_to_all_v, send, recv, type);
    muster::HostStream* const on = place(call, c, stream);
    submit_all_to_all_v(c.communicator.impl(), call, per_rank(c, send_counts, "sendcounts"),
                        displacements(c, send_displs), per_rank(c, recv_counts, "recvcounts"),
                        displacements(c, recv_displs), on);
  });
}

MUSTER_API ncclResult_t musterBarrier(ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) { c.communicator.barrier(host_stream(stream)); });
}

}  // extern "C"
