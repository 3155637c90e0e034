#include "nccl/stream_handle.h"

#include "base/error.h"
#include "muster.h"
#include "nccl/last_error.h"

namespace muster::nccl {

HandleTable<StreamHandle, kMostStreams> g_streams;

StreamHandle& require_stream(cudaStream_t stream) {
  StreamHandle* found = g_streams.find(stream);
  if (!found) [[unlikely]]
    fail(Result::invalid_argument,
         "stream {} {}. On host memory a stream is NULL, and the calling thread runs the call, or one made "
         "by musterStreamCreate; a CUDA stream "
         "can't order calls on host memory",
         static_cast<void*>(stream),
         g_streams.is_stale(stream) ? "was destroyed before" : "is none of this library's");
  return *found;
}

}  // namespace muster::nccl

using namespace muster::nccl;

extern "C" {

MUSTER_API ncclResult_t musterStreamCreate(cudaStream_t* stream) {
  return query([&] {
    require_pointer(stream, "stream");
    *stream = nullptr;
    auto made = std::make_unique<muster::HostStream>();
    StreamHandle& handle = g_streams.open("streams");
    handle.stream = std::move(made);
    *stream = reinterpret_cast<cudaStream_t>(&handle);
  });
}

MUSTER_API ncclResult_t musterStreamDestroy(cudaStream_t stream) {
  return query([&] {
    StreamHandle& handle = require_stream(stream);  // the default stream was never made
    if (g_streams.retire(handle)) g_streams.recycle(handle);
  });
}

MUSTER_API ncclResult_t musterStreamSynchronize(cudaStream_t stream) {
  return query([&] {
    if (muster::HostStream* s = host_stream(stream)) s->synchronize();
  });
}

MUSTER_API ncclResult_t musterStreamQuery(cudaStream_t stream) {
  bool idle = true;
  const ncclResult_t result = query([&] {
    if (const muster::HostStream* s = host_stream(stream)) idle = s->idle();
  });
  return result == ncclSuccess && !idle ? ncclInProgress : result;
}

}  // extern "C"
