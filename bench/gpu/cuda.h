// The CUDA runtime's and NCCL's errors as muster::Error.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

namespace muster::perf {

// what: the call that returned it.
void require(cudaError_t error, const char* what);
void require(ncclResult_t result, const char* what, ncclComm_t comm = nullptr);

// The calling thread's current device, for as long as this lives.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

}  // namespace muster::perf
