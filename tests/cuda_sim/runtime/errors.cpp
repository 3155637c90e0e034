// The errors of calls, and their names.
#include "runtime.h"

namespace cuda_sim {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};
#define CUDA_SIM_ERROR(name, text) \
  { name, #name, text }
const ErrorText kErrors[] = {
    CUDA_SIM_ERROR(cudaSuccess, "no error"),
    CUDA_SIM_ERROR(cudaErrorInvalidValue, "invalid argument"),
    CUDA_SIM_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    CUDA_SIM_ERROR(cudaErrorInitializationError, "initialization error"),
    CUDA_SIM_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    CUDA_SIM_ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    CUDA_SIM_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    CUDA_SIM_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    CUDA_SIM_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    CUDA_SIM_ERROR(cudaErrorNoKernelImageForDevice,
                   "no kernel image is available for execution on the device"),
    CUDA_SIM_ERROR(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    CUDA_SIM_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    CUDA_SIM_ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    CUDA_SIM_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    CUDA_SIM_ERROR(cudaErrorNotReady, "device not ready"),
    CUDA_SIM_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    CUDA_SIM_ERROR(cudaErrorAssert, "device-side assert triggered"),
    CUDA_SIM_ERROR(cudaErrorHostMemoryAlreadyRegistered,
                   "part or all of the requested memory range is already mapped"),
    CUDA_SIM_ERROR(cudaErrorHostMemoryNotRegistered,
                   "pointer does not correspond to a registered memory region"),
    CUDA_SIM_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    CUDA_SIM_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    CUDA_SIM_ERROR(cudaErrorNotSupported, "operation not supported"),
    CUDA_SIM_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    CUDA_SIM_ERROR(cudaErrorStreamCaptureInvalidated,
                   "operation failed due to a previous error during capture"),
    CUDA_SIM_ERROR(cudaErrorStreamCaptureUnmatched, "capture was not initiated in this stream"),
    CUDA_SIM_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    CUDA_SIM_ERROR(cudaErrorStreamCaptureIsolation,
                   "dependency created on uncaptured work in another stream"),
    CUDA_SIM_ERROR(cudaErrorStreamCaptureImplicit,
                   "operation would make the legacy stream depend on a capturing blocking stream"),
    CUDA_SIM_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    CUDA_SIM_ERROR(cudaErrorDeviceUninitialized, "invalid device context"),
    CUDA_SIM_ERROR(cudaErrorMapBufferObjectFailed, "mapping of buffer object failed"),
    CUDA_SIM_ERROR(cudaErrorUnknown, "unknown error")};

const ErrorText* find_error(cudaError_t e) {
  for (const ErrorText& known : kErrors)
    if (known.error == e) return &known;
  return nullptr;
}

}  // namespace

cudaError_t set_error(cudaError_t e) {
  if (e != cudaSuccess && e != cudaErrorNotReady) last_error = e;
  return e;
}

CUDA_API cudaError_t cudaPeekAtLastError() {
  if (last_error == cudaSuccess && device_count())
    return static_cast<cudaError_t>(device(current_device).sticky.load());
  return last_error;
}
CUDA_API cudaError_t cudaGetLastError() {
  cudaError_t e = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return e;
}
CUDA_API const char* cudaGetErrorString(cudaError_t e) {
  const ErrorText* known = find_error(e);
  return known ? known->text : "unrecognized error code";
}
CUDA_API const char* cudaGetErrorName(cudaError_t e) {
  const ErrorText* known = find_error(e);
  return known ? known->name : "unrecognized error code";
}

}  // namespace cuda_sim
