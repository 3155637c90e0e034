// The functions of the CUDA driver, from libcuda.so.1, which is looked for at run time. For what calls them itself.
#pragma once

#include <cuda.h>
#include <fmt/format.h>

#include <string>

namespace muster::cuda {

#define MUSTER_DRIVER_FUNCTIONS(F)                                                                                    \
  F(cuInit) F(cuGetErrorName) F(cuGetErrorString) F(cuDeviceGetAttribute) F(cuMemGetAllocationGranularity)            \
  F(cuMemCreate) F(cuMemRelease) F(cuMemAddressReserve) F(cuMemAddressFree) F(cuMemMap) F(cuMemUnmap)                 \
  F(cuMemSetAccess) F(cuMemExportToShareableHandle) F(cuMemImportFromShareableHandle) F(cuMemRetainAllocationHandle) \
  F(cuMemGetAddressRange) F(cuStreamBatchMemOp)

struct Driver {
#define MUSTER_DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
  MUSTER_DRIVER_FUNCTIONS(MUSTER_DRIVER_MEMBER)
#undef MUSTER_DRIVER_MEMBER
  std::string why_none;  // not empty: there is no driver, or it is too old, and no function may be called
};
// Looked for once in a process.
const Driver& driver();

// Throws unhandled_device_error: "<what>: <name> (<text>). <remedy>".
[[noreturn]] void fail_driver(CUresult result, const std::string& what);

template <class... Args>
void check(CUresult result, fmt::format_string<Args...> what, Args&&... args) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    fail_driver(result, fmt::format(what, std::forward<Args>(args)...));
}

}  // namespace muster::cuda
