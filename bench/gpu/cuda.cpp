#include "gpu/cuda.h"

#include <fmt/format.h>

#include "muster/types.h"

namespace muster::perf {

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // reported here
  throw Error(Result::unhandled_device_error,
              fmt::format("{}: {} ({})", what, cudaGetErrorName(error), cudaGetErrorString(error)));
}

void require(ncclResult_t result, const char* what, ncclComm_t comm) {
  if (result == ncclSuccess) return;
  throw Error(static_cast<Result>(result), fmt::format("{}: {}", what, ncclGetLastError(comm)));
}

OnDevice::OnDevice(int device) {
  require(cudaGetDevice(&before_), "cudaGetDevice");
  require(cudaSetDevice(device), "cudaSetDevice");
}

OnDevice::~OnDevice() { cudaSetDevice(before_); }

}  // namespace muster::perf
