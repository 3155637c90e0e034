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

// Null: the calling thread runs the call. That is NULL and CUDA's names of the default stream (1 and 2).
inline HostStream* host_stream(cudaStream_t stream) {
  constexpr uintptr_t kLastDefaultStream = 2;
  if (reinterpret_cast<uintptr_t>(stream) <= kLastDefaultStream) [[likely]]
    return nullptr;
  return require_stream(stream).stream.get();
}

}  // namespace muster::nccl
