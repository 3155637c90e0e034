#include "exec/cuda/kernels.h"
#include "exec/cuda/messages.cuh"

namespace muster::cuda {
namespace {

__global__ void __launch_bounds__(kMostKernelThreads, 1)
    move_messages(const __grid_constant__ MessageArgs args) {
  __shared__ MessageMover::Shared shared;
  MessageMover(args, shared).run();
}

}  // namespace

const void* message_kernel() {
  using Kernel = void (*)(MessageArgs);
  const Kernel kernel = &move_messages;
  return reinterpret_cast<const void*>(kernel);
}

}  // namespace muster::cuda
