// The C++ interface on GPU memory: arguments to calls.
#include "base/error.h"
#include "comm/gpu_rank.h"
#include "comm/state.h"
#include "comm/uneven.h"
#include "muster/gpu.h"

namespace muster::gpu {
namespace {

void require_gpu_memory(const Call& call) {
  const GpuLibrary* const gpus = gpu_library();
  if (!gpus)
    fail(Result::invalid_usage,
         "{} on GPU memory: this library has no part for GPUs (-DMUSTER_GPU=static), or this process sees "
         "none "
         "(nvidia-smi, CUDA_VISIBLE_DEVICES)",
         name_of(call.shape.coll));
  if (call.shape.count == 0 || gpus->holds(call.recv) || gpus->holds(call.send)) return;
  fail(
      Result::invalid_argument,
      "{} on a CUDA stream has its buffers in host memory. Communicator's methods are for those; or allocate "
      "them with cudaMalloc",
      name_of(call.shape.coll));
}

Call on_stream(Call call, GpuStream stream) {
  check_call([&] { require_gpu_memory(call); });
  call.on_gpu = true;
  call.gpu_stream = static_cast<CUstream_st*>(stream.handle);
  return call;
}

void submit_even(Communicator& c, Coll coll, const void* send, void* recv, size_t count, DataType type,
                 const ReduceOp& op, int root, GpuStream stream) {
  submit(require(c.impl()), on_stream(call_of(coll, send, recv, count, type, op, root), stream), nullptr);
}

// Its count stands for what the counts are, until they are known.
Call uneven_call(Coll coll, const void* send, void* recv, DataType type, const ReduceOp& op,
                 GpuStream stream) {
  return on_stream(call_of(coll, send, recv, send || recv ? 1 : 0, type, op), stream);
}

void submit_message(Communicator& c, bool is_send, const void* source, void* target, size_t count,
                    DataType type, int peer, GpuStream stream) {
  Call call;
  call.shape = {Coll::send_recv, type, RedOp::sum, 0, count};
  call.send = source;
  call.recv = target;
  call.peer = peer;
  call.is_send = is_send;
  submit(require(c.impl()), on_stream(call, stream), nullptr);
}

}  // namespace

void all_reduce(Communicator& c, const void* send, void* recv, size_t count, DataType type, ReduceOp op,
                GpuStream stream) {
  submit_even(c, Coll::all_reduce, send, recv, count, type, op, 0, stream);
}
void broadcast(Communicator& c, const void* send, void* recv, size_t count, DataType type, int root,
               GpuStream stream) {
  submit_even(c, Coll::broadcast, send, recv, count, type, {}, root, stream);
}
void reduce(Communicator& c, const void* send, void* recv, size_t count, DataType type, ReduceOp op, int root,
            GpuStream stream) {
  submit_even(c, Coll::reduce, send, recv, count, type, op, root, stream);
}
void all_gather(Communicator& c, const void* send, void* recv, size_t count, DataType type,
                GpuStream stream) {
  submit_even(c, Coll::all_gather, send, recv, count, type, {}, 0, stream);
}
void reduce_scatter(Communicator& c, const void* send, void* recv, size_t count, DataType type, ReduceOp op,
                    GpuStream stream) {
  submit_even(c, Coll::reduce_scatter, send, recv, count, type, op, 0, stream);
}
void all_to_all(Communicator& c, const void* send, void* recv, size_t count, DataType type,
                GpuStream stream) {
  submit_even(c, Coll::all_to_all, send, recv, count, type, {}, 0, stream);
}
void gather(Communicator& c, const void* send, void* recv, size_t count, DataType type, int root,
            GpuStream stream) {
  submit_even(c, Coll::gather, send, recv, count, type, {}, root, stream);
}
void scatter(Communicator& c, const void* send, void* recv, size_t count, DataType type, int root,
             GpuStream stream) {
  submit_even(c, Coll::scatter, send, recv, count, type, {}, root, stream);
}

void all_gather_v(Communicator& c, const void* send, size_t send_count, void* recv,
                  std::span<const size_t> recv_counts, std::span<const size_t> displacements, DataType type,
                  GpuStream stream) {
  submit_all_gather_v(require(c.impl()), uneven_call(Coll::all_gather_v, send, recv, type, {}, stream),
                      send_count, recv_counts, displacements, nullptr);
}
void reduce_scatter_v(Communicator& c, const void* send, void* recv, std::span<const size_t> recv_counts,
                      DataType type, ReduceOp op, GpuStream stream) {
  submit_reduce_scatter_v(require(c.impl()),
                          uneven_call(Coll::reduce_scatter_v, send, recv, type, op, stream), recv_counts,
                          nullptr);
}
void all_to_all_v(Communicator& c, const void* send, std::span<const size_t> send_counts,
                  std::span<const size_t> send_displacements, void* recv, std::span<const size_t> recv_counts,
                  std::span<const size_t> recv_displacements, DataType type, GpuStream stream) {
  submit_all_to_all_v(require(c.impl()), uneven_call(Coll::all_to_all_v, send, recv, type, {}, stream),
                      send_counts, send_displacements, recv_counts, recv_displacements, nullptr);
}

void send(Communicator& c, const void* buffer, size_t count, DataType type, int peer, GpuStream stream) {
  submit_message(c, true, buffer, nullptr, count, type, peer, stream);
}
void recv(Communicator& c, void* buffer, size_t count, DataType type, int peer, GpuStream stream) {
  submit_message(c, false, nullptr, buffer, count, type, peer, stream);
}

}  // namespace muster::gpu
