// What a cudaStream_t stands for on host memory.
#pragma once

#include <memory>

#include "muster/muster.h"
#include "nccl.h"
#include "nccl/handle_table.h"

namespace muster::nccl {

struct StreamHandle {
  std::unique_ptr<HostStream> stream;
  void clear() { stream.reset(); }
};

inline constexpr size_t kMostStreams = 1 << 12;
extern HandleTable<StreamHandle, kMostStreams> g_streams;

// invalid_argument: not one of musterStreamCreate's.
StreamHandle& require_stream(cudaStream_t stream);

// NULL and CUDA's names (1 and 2).
inline bool is_default_stream(cudaStream_t stream) {
  constexpr uintptr_t kLastDefaultStream = 2;
  return reinterpret_cast<uintptr_t>(stream) <= kLastDefaultStream;
}

// Null: the calling thread runs the call. That is any default stream.
inline HostStream* host_stream(cudaStream_t stream) {
  if (is_default_stream(stream)) [[likely]]
    return nullptr;
  return require_stream(stream).stream.get();
}

// One that none of this library's is. `otherwise`: what a default stream is taken for.
inline bool is_gpu_stream(cudaStream_t stream, bool otherwise) {
  if (is_default_stream(stream)) return otherwise;
  return g_streams.find(stream) == nullptr;
}

}  // namespace muster::nccl
