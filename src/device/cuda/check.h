// For what calls the CUDA runtime itself.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <string>

namespace muster::cuda {

// What a person can do about it; empty where nothing general can be said.
const char* remedy(cudaError_t error);

// Throws unhandled_device_error: "<what>: <name> (<text>). <remedy>". Takes the error away, so that the
// program which looks for its own doesn't find it.
[[noreturn]] void fail_cuda(cudaError_t error, const std::string& what);

template <class... Args>
void check(cudaError_t error, fmt::format_string<Args...> what, Args&&... args) {
  if (error != cudaSuccess) [[unlikely]]
    fail_cuda(error, fmt::format(what, std::forward<Args>(args)...));
}

// While it lives, what the calling thread asks of the runtime doesn't end a capture of another thread's.
class LeavesCapturesAlone {
 public:
  LeavesCapturesAlone() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~LeavesCapturesAlone() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  LeavesCapturesAlone(const LeavesCapturesAlone&) = delete;
  LeavesCapturesAlone& operator=(const LeavesCapturesAlone&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace muster::cuda
