// muster.h's collectives.
#include "base/error.h"
#include "muster.h"
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

}  // namespace
}  // namespace muster::nccl

using namespace muster::nccl;

extern "C" {

MUSTER_API ncclResult_t musterAllGatherV(const void* send, size_t send_count, void* recv,
                                         const size_t* recv_counts, const size_t* displs, ncclDataType_t type,
                                         ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    (void)require_made(comm);
    c.communicator.all_gather_v(send, send_count, recv, per_rank(c, recv_counts, "recvcounts"),
                                displacements(c, displs), static_cast<muster::DataType>(type),
                                host_stream(stream));
  });
}

MUSTER_API ncclResult_t musterReduceScatterV(const void* send, void* recv, const size_t* recv_counts,
                                             ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                             cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    (void)require_made(comm);
    c.communicator.reduce_scatter_v(send, recv, per_rank(c, recv_counts, "recvcounts"),
                                    static_cast<muster::DataType>(type), complete_op(c, op),
                                    host_stream(stream));
  });
}

MUSTER_API ncclResult_t musterAlltoAllV(const void* send, const size_t* send_counts,
                                        const size_t* send_displs, void* recv, const size_t* recv_counts,
                                        const size_t* recv_displs, ncclDataType_t type, ncclComm_t comm,
                                        cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    (void)require_made(comm);
    c.communicator.all_to_all_v(send, per_rank(c, send_counts, "sendcounts"), displacements(c, send_displs),
                                recv, per_rank(c, recv_counts, "recvcounts"), displacements(c, recv_displs),
                                static_cast<muster::DataType>(type), host_stream(stream));
  });
}

MUSTER_API ncclResult_t musterBarrier(ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) { c.communicator.barrier(host_stream(stream)); });
}

}  // extern "C"
