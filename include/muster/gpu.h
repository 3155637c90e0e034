// Collectives, sends and receives on GPU memory, in the order of a CUDA stream: what Communicator's methods
// of these names do on host memory. Without the toolkit's headers: a stream is a cudaStream_t, or null for
// CUDA's default stream.
//
// A call is over when the stream has it, but for the first one of a communicator on GPU memory: that decides
// the communicator's GPU and connects the ranks, and returns when all of them have made theirs. What goes
// wrong later is in Communicator::async_error() and comes out of the next call. Buffers are memory of that
// GPU, managed, or pinned host memory; one of them at least isn't host memory, unless the count is 0. They
// belong to the call until the stream has come past it. Groups (muster.h) may have calls on both kinds of
// memory. What it doesn't do: docs/cuda.md.
//
// Errors: those of Communicator's methods; invalid_usage where the library has no part for GPUs
// (-DMUSTER_GPU) or there is no GPU; invalid_argument: a buffer in host memory, or of another GPU than the
// communicator's. Thread-safety: as for Communicator's methods.
#pragma once

#include <cstddef>
#include <span>

#include "muster/muster.h"

namespace muster {

struct GpuStream {
  void* handle = nullptr;  // a cudaStream_t
};

namespace gpu {

MUSTER_API void all_reduce(Communicator& c, const void* send, void* recv, size_t count, DataType type,
                           ReduceOp op, GpuStream stream);
MUSTER_API void broadcast(Communicator& c, const void* send, void* recv, size_t count, DataType type,
                          int root, GpuStream stream);
MUSTER_API void reduce(Communicator& c, const void* send, void* recv, size_t count, DataType type,
                       ReduceOp op, int root, GpuStream stream);
MUSTER_API void all_gather(Communicator& c, const void* send, void* recv, size_t count, DataType type,
                           GpuStream stream);
MUSTER_API void reduce_scatter(Communicator& c, const void* send, void* recv, size_t count, DataType type,
                               ReduceOp op, GpuStream stream);
MUSTER_API void all_to_all(Communicator& c, const void* send, void* recv, size_t count, DataType type,
                           GpuStream stream);
MUSTER_API void gather(Communicator& c, const void* send, void* recv, size_t count, DataType type, int root,
                       GpuStream stream);
MUSTER_API void scatter(Communicator& c, const void* send, void* recv, size_t count, DataType type, int root,
                        GpuStream stream);
// Counts and displacements are read before the call returns.
MUSTER_API void all_gather_v(Communicator& c, const void* send, size_t send_count, void* recv,
                             std::span<const size_t> recv_counts, std::span<const size_t> displacements,
                             DataType type, GpuStream stream);
MUSTER_API void reduce_scatter_v(Communicator& c, const void* send, void* recv,
                                 std::span<const size_t> recv_counts, DataType type, ReduceOp op,
                                 GpuStream stream);
MUSTER_API void all_to_all_v(Communicator& c, const void* send, std::span<const size_t> send_counts,
                             std::span<const size_t> send_displacements, void* recv,
                             std::span<const size_t> recv_counts, std::span<const size_t> recv_displacements,
                             DataType type, GpuStream stream);
MUSTER_API void send(Communicator& c, const void* buffer, size_t count, DataType type, int peer,
                     GpuStream stream);
MUSTER_API void recv(Communicator& c, void* buffer, size_t count, DataType type, int peer, GpuStream stream);

}  // namespace gpu
}  // namespace muster
