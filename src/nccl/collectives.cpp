// Collectives, sends and receives: arguments to calls.
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/state.h"
#include "nccl/collectives.h"
#include "nccl/entries.h"
#include "nccl/last_error.h"
#include "nccl/reduce_op.h"
#include "nccl/stream_handle.h"
#include "plan/selection.h"

namespace muster::nccl {
namespace {

constexpr DataType type_of(ncclDataType_t type) { return static_cast<DataType>(type); }

[[gnu::cold]] void set_custom_op(Call& call, const CommHandle& comm, ncclRedOp_t number) {
  const CustomOp custom = custom_op(comm, number);
  const CallShape& s = call.shape;
  if (custom.op.op == RedOp::pre_mul_sum && custom.op.scalar_type != s.type)
    fail(Result::invalid_argument,
         "{}: the scalar of operation {} is {}, the elements are {}; they must be of one type",
         name_of(s.coll), custom.number, name_of(custom.op.scalar_type), name_of(s.type));
  call.shape.op = custom.op.op;
  call.weight_bits = custom.op.scalar_bits;
  if (!custom.device_scalar) return;
  // A call that runs at once reads it here; one that is queued, when it runs.
  call.weight_at = custom.device_scalar;
  if (call.on_gpu) return;
  std::memcpy(&call.weight_bits, custom.device_scalar, size_of(s.type));
}

// Whether the wish can be met is the same on all ranks: it is a matter of the call and of what planning
// knows.
void set_algorithms(Call& call, const CommHandle& comm, const AlgorithmWish& wish) {
  Communicator::Impl& impl = *comm.communicator.impl();
  impl.require_usable();
  impl.validate(call);
  try {
    call.shape.allowed = parse_selection(call.shape.coll, wish.selection);
    choose(call.shape, impl.inputs);
  } catch (const Error& e) {
    if (wish.forced)
      throw Error(e.code(), fmt::format("algSelection '{}': {}. With forceAlgSelection 0 it is a wish only",
                                        printable(wish.selection, 200), e.what()));
    call.shape.allowed = 0;
    log_info(Topic::tuning, "algSelection '{}' is ignored, as forceAlgSelection is 0: {}",
             printable(wish.selection, 200), e.what());
  }
}

// As Communicator's methods do it, without the way through them: it is what small messages cost.
template <class Adapt>
inline ncclResult_t collective(Coll coll, const void* send, void* recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream, Adapt adapt) {
  return call_on(comm, [&](CommHandle& c) {
    Call call;
    call.shape = {coll, type_of(type), static_cast<RedOp>(op), root, count};
    call.send = send;
    call.recv = recv;
    HostStream* const on = place(call, c, stream);
    if (!is_built_in(op)) [[unlikely]]
      set_custom_op(call, c, op);
    adapt(call, c);
    submit(c.communicator.impl(), call, on);
  });
}

inline ncclResult_t collective(Coll coll, const void* send, void* recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return collective(coll, send, recv, count, type, op, root, comm, stream, [](Call&, const CommHandle&) {});
}

ncclResult_t message(bool is_send, const void* send, void* recv, size_t count, ncclDataType_t type, int peer,
                     ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    Call call;
    call.shape = {Coll::send_recv, type_of(type), RedOp::sum, 0, count};
    call.send = send;
    call.recv = recv;
    call.peer = peer;
    call.is_send = is_send;
    HostStream* const on = place(call, c, stream);
    submit(c.communicator.impl(), call, on);
  });
}

}  // namespace

// Where there is nothing, addresses say nothing, so the stream does.
HostStream* place(Call& call, const CommHandle& comm, cudaStream_t stream) {
  const GpuLibrary* const gpus = gpu_library();
  if (gpus && (gpus->holds(call.recv) || gpus->holds(call.send) ||
               (call.shape.count == 0 && is_gpu_stream(stream, comm.communicator.impl()->gpu_device >= 0))))
      [[unlikely]] {
    call.on_gpu = true;
    call.gpu_stream = stream;
    return nullptr;
  }
  return host_stream(stream);
}

ncclResult_t collective_with(const AlgorithmWish& wish, Coll coll, const void* send, void* recv, size_t count,
                             ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                             cudaStream_t stream) {
  return collective(coll, send, recv, count, type, op, root, comm, stream,
                    [&](Call& call, const CommHandle& c) {
                      if (!wish.selection.empty()) set_algorithms(call, c, wish);
                    });
}

ncclResult_t AllReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                       ncclComm_t comm, cudaStream_t stream) {
  return collective(Coll::all_reduce, send, recv, count, type, op, 0, comm, stream);
}

ncclResult_t Reduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                    ncclComm_t comm, cudaStream_t stream) {
  return collective(Coll::reduce, send, recv, count, type, op, root, comm, stream);
}

ncclResult_t ReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(Coll::reduce_scatter, send, recv, count, type, op, 0, comm, stream);
}

ncclResult_t Broadcast(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return collective(Coll::broadcast, send, recv, count, type, ncclSum, root, comm, stream);
}

ncclResult_t Bcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                   cudaStream_t stream) {
  return Broadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t AllGather(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                       cudaStream_t stream) {
  return collective(Coll::all_gather, send, recv, count, type, ncclSum, 0, comm, stream);
}

ncclResult_t AlltoAll(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                      cudaStream_t stream) {
  return collective(Coll::all_to_all, send, recv, count, type, ncclSum, 0, comm, stream);
}

ncclResult_t Gather(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                    ncclComm_t comm, cudaStream_t stream) {
  return collective(Coll::gather, send, recv, count, type, ncclSum, root, comm, stream);
}

ncclResult_t Scatter(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                     ncclComm_t comm, cudaStream_t stream) {
  return collective(Coll::scatter, send, recv, count, type, ncclSum, root, comm, stream);
}

ncclResult_t Send(const void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return message(true, buffer, nullptr, count, type, peer, comm, stream);
}

ncclResult_t Recv(void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return message(false, nullptr, buffer, count, type, peer, comm, stream);
}

}  // namespace muster::nccl
