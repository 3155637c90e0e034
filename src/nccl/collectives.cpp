// Collectives, sends and receives: arguments to the C++ interface.
#include "comm/state.h"
#include "nccl/entries.h"
#include "nccl/last_error.h"
#include "nccl/reduce_op.h"
#include "nccl/stream_handle.h"

namespace muster::nccl {
namespace {

constexpr DataType type_of(ncclDataType_t type) { return static_cast<DataType>(type); }

// A scalar in "device" memory is read when the call runs, which for one that is queued is later.
void submit_with_device_scalar(CommHandle& c, Coll coll, const void* send, void* recv, size_t count,
                               DataType type, int root, const CustomOp& op, HostStream* stream) {
  if (op.op.scalar_type != type)
    fail(Result::invalid_argument,
         "{}: the scalar of operation {} is {}, the elements are {}; they must be of one type", name_of(coll),
         op.number, name_of(op.op.scalar_type), name_of(type));
  Call call;
  call.shape = {coll, type, RedOp::pre_mul_sum, root, count};
  call.send = send;
  call.recv = recv;
  call.weight_bits = ReduceOp::pre_mul_sum(op.device_scalar, type).scalar_bits;
  call.weight_at = op.device_scalar;
  submit(c.communicator.impl(), call, stream);
}

// A reducing call: run(op) for an operation that is complete now.
template <class Run>
inline void reduce_by(CommHandle& c, ncclRedOp_t op, Coll coll, const void* send, void* recv, size_t count,
                      ncclDataType_t type, int root, cudaStream_t stream, Run run) {
  if (is_built_in(op)) [[likely]]
    return run(ReduceOp(static_cast<RedOp>(op)));
  const CustomOp custom = custom_op(c, op);
  if (custom.device_scalar)
    submit_with_device_scalar(c, coll, send, recv, count, type_of(type), root, custom, host_stream(stream));
  else
    run(custom.op);
}

}  // namespace

ncclResult_t AllReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                       ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    reduce_by(c, op, Coll::all_reduce, send, recv, count, type, 0, stream, [&](ReduceOp o) {
      c.communicator.all_reduce(send, recv, count, type_of(type), o, host_stream(stream));
    });
  });
}

ncclResult_t Reduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                    ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    reduce_by(c, op, Coll::reduce, send, recv, count, type, root, stream, [&](ReduceOp o) {
      c.communicator.reduce(send, recv, count, type_of(type), o, root, host_stream(stream));
    });
  });
}

ncclResult_t ReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    reduce_by(c, op, Coll::reduce_scatter, send, recv, count, type, 0, stream, [&](ReduceOp o) {
      c.communicator.reduce_scatter(send, recv, count, type_of(type), o, host_stream(stream));
    });
  });
}

ncclResult_t Broadcast(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    c.communicator.broadcast(send, recv, count, type_of(type), root, host_stream(stream));
  });
}

ncclResult_t Bcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                   cudaStream_t stream) {
  return Broadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t AllGather(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                       cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    c.communicator.all_gather(send, recv, count, type_of(type), host_stream(stream));
  });
}

ncclResult_t AlltoAll(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                      cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    c.communicator.all_to_all(send, recv, count, type_of(type), host_stream(stream));
  });
}

ncclResult_t Gather(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                    ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    c.communicator.gather(send, recv, count, type_of(type), root, host_stream(stream));
  });
}

ncclResult_t Scatter(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                     ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    c.communicator.scatter(send, recv, count, type_of(type), root, host_stream(stream));
  });
}

ncclResult_t Send(const void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    c.communicator.send(buffer, count, type_of(type), peer, host_stream(stream));
  });
}

ncclResult_t Recv(void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    c.communicator.recv(buffer, count, type_of(type), peer, host_stream(stream));
  });
}

}  // namespace muster::nccl
