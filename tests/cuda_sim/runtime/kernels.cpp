// Kernels: what nvcc's launch stubs call, launches, and what can be asked of a kernel.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <unordered_map>

#include "faults.h"
#include "runtime.h"

namespace cuda_sim {
namespace {

std::mutex kernels_mutex;
std::unordered_map<const void*, Kernel*>& kernels() {  // by host stub
  static auto* all = new std::unordered_map<const void*, Kernel*>;
  return *all;
}

void set_sticky(int index, Fault fault) {
  int error = fault == Fault::kIllegalAddress ? cudaErrorIllegalAddress
              : fault == Fault::kAssert       ? cudaErrorAssert
                                              : cudaErrorLaunchFailure;
  int none = 0;
  device(index).sticky.compare_exchange_strong(none, error);
}

bool fits(const Kernel& k, dim3 grid, dim3 block) {
  if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z) return false;
  if (grid.y > 65535 || grid.z > 65535 || block.x > 1024 || block.y > 1024 || block.z > 64) return false;
  return static_cast<size_t>(block.x) * block.y * block.z <= static_cast<size_t>(k.max_threads);
}

struct PendingLaunch {
  Launch launch;
  std::vector<std::max_align_t> parameters;  // PTX aligns parameters to at most 16 bytes
};

struct Configuration {
  dim3 grid, block;
  size_t dynamic_shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;  // <<<...>>> pushes one, the stub pops it

}  // namespace

Kernel* find_kernel(const void* function) {
  std::lock_guard lock(kernels_mutex);
  if (auto found = kernels().find(function); found != kernels().end()) return found->second;
  for (const auto& [stub, kernel] : kernels())
    if (kernel == function) return kernel;
  return nullptr;
}

void register_kernel(const void* host_function, Module* m, const char* name) {
  std::lock_guard lock(kernels_mutex);
  kernels().try_emplace(host_function, new Kernel{.module = m, .name = name, .parameters = {}});
}

cudaError_t launch(Kernel* k, dim3 grid, dim3 block, void** arguments, size_t dynamic_shared,
                   cudaStream_t stream) {
  if (!k) return cudaErrorInvalidDeviceFunction;
  if (!resolve_kernel(k)) return cudaErrorNoKernelImageForDevice;
  if (!fits(*k, grid, block)) return cudaErrorInvalidConfiguration;
  if (dynamic_shared > k->max_dynamic_shared || dynamic_shared + k->static_shared > kMaxShared)
    return cudaErrorInvalidValue;
  Stream* s = find_stream(stream);
  if (!s || s->device != current_device) return cudaErrorInvalidResourceHandle;
  auto pending = std::make_shared<PendingLaunch>();
  pending->parameters.resize(k->parameter_bytes / sizeof(std::max_align_t) + 1);
  auto* parameters = reinterpret_cast<char*>(pending->parameters.data());
  for (size_t i = 0; i < k->parameters.size(); i++)
    memcpy(parameters + k->parameters[i].offset, arguments[i], k->parameters[i].size);
  pending->launch = {.fn = k->fn,
                     .params = parameters,
                     .grid = {grid.x, grid.y, grid.z},
                     .block = {block.x, block.y, block.z},
                     .static_shared = k->static_shared,
                     .dynamic_shared = static_cast<uint32_t>(dynamic_shared),
                     .globals = module_globals(k->module, s->device),
                     .name = k->name.c_str(),
                     .device = s->device,
                     .resident_threads = static_cast<uint32_t>(multiprocessors()) * kThreadsPerSm};
  static const bool trace = option("CUDASIM_TRACE", 0) != 0;
  if (trace)
    fprintf(stderr,
            "cuda_sim: process %d, device %d: launch of %s, grid %u,%u,%u, block %u,%u,%u, %zu bytes of "
            "shared memory\n",
            getpid(), s->device, k->name.c_str(), grid.x, grid.y, grid.z, block.x, block.y, block.z,
            dynamic_shared);
  bool stalls = launch_stalls(k->name, s->device);
  return submit(s, NodeKind::kKernel, [pending, stalls] {
    while (stalls) pause();
    Fault fault = run_grid(pending->launch);
    if (fault != Fault::kNone) set_sticky(pending->launch.device, fault);
  });
}

CUDA_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t dynamic_shared,
                                              cudaStream_t stream) {
  configurations.push_back({grid, block, dynamic_shared, stream});
  return 0;
}
CUDA_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* dynamic_shared,
                                                void* stream) {
  if (configurations.empty()) return cudaErrorInvalidConfiguration;
  const Configuration& last = configurations.back();
  *grid = last.grid;
  *block = last.block;
  *dynamic_shared = last.dynamic_shared;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  configurations.pop_back();
  return cudaSuccess;
}
CUDA_API cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                      size_t dynamic_shared, cudaStream_t stream) {
  CUDA_SIM_ENTER();
  CUDA_SIM_CHECK_DEVICE();
  return set_error(launch(find_kernel(function), grid, block, arguments, dynamic_shared, stream));
}
CUDA_API cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                                 void** arguments, size_t dynamic_shared,
                                                 cudaStream_t stream) {
  return cudaLaunchKernel(function, grid, block, arguments, dynamic_shared, stream);
}
CUDA_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* function,
                                         void** arguments) {
  for (unsigned i = 0; i < c->numAttrs; i++)
    if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) {
      fprintf(stderr, "cuda_sim: cudaLaunchKernelEx: clusters are not simulated\n");
      return set_error(cudaErrorNotSupported);
    }
  return cudaLaunchKernel(function, c->gridDim, c->blockDim, arguments, c->dynamicSmemBytes, c->stream);
}
CUDA_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                        size_t dynamic_shared, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, dynamic_shared, stream);
}
CUDA_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(find_kernel(function));
  return *kernel ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}
CUDA_API cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  return set_error(__cudaGetKernel(kernel, function));
}
CUDA_API cudaError_t cudaGetFuncBySymbol(cudaFunction_t* handle, const void* function) {
  *handle = reinterpret_cast<cudaFunction_t>(find_kernel(function));
  return set_error(*handle ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}
CUDA_API cudaError_t cudaFuncGetName(const char** name, const void* function) {
  const Kernel* k = find_kernel(function);
  if (!k) return set_error(cudaErrorInvalidDeviceFunction);
  *name = k->name.c_str();
  return cudaSuccess;
}
CUDA_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* function) {
  CUDA_SIM_ENTER();
  Kernel* k = find_kernel(function);
  if (!k) return set_error(cudaErrorInvalidDeviceFunction);
  if (!describe_kernel(k)) return set_error(cudaErrorNoKernelImageForDevice);
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = k->max_threads;
  a->numRegs = k->registers;
  a->ptxVersion = a->binaryVersion = static_cast<int>(option("CUDASIM_CC", 90));
  a->sharedSizeBytes = k->static_shared;
  a->maxDynamicSharedSizeBytes = static_cast<int>(k->max_dynamic_shared);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  CUDA_SIM_ENTER();
  Kernel* k = find_kernel(function);
  if (!k) return set_error(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;  // hints
  if (value < 0 || value > kMaxShared) return set_error(cudaErrorInvalidValue);
  k->max_dynamic_shared = static_cast<uint32_t>(value);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
CUDA_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                            int block_threads,
                                                                            size_t dynamic_shared, unsigned) {
  CUDA_SIM_ENTER();
  Kernel* k = find_kernel(function);
  if (!k) return set_error(cudaErrorInvalidDeviceFunction);
  if (!describe_kernel(k)) return set_error(cudaErrorNoKernelImageForDevice);
  if (block_threads <= 0 || block_threads > k->max_threads) return set_error(cudaErrorInvalidValue);
  size_t shared = dynamic_shared + k->static_shared + 1024;  // 1024: reserved
  const int registers = k->registers * static_cast<int>(round_up(static_cast<size_t>(block_threads), 32));
  *blocks = std::min({32, static_cast<int>(kThreadsPerSm) / block_threads,
                      static_cast<int>((kMaxShared + 1024) / shared), kRegistersPerSm / registers});
  return cudaSuccess;
}
CUDA_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                                   int block_threads, size_t dynamic_shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_threads,
                                                                dynamic_shared, 0);
}
CUDA_API cudaError_t cudaProfilerStart() { return cudaSuccess; }
CUDA_API cudaError_t cudaProfilerStop() { return cudaSuccess; }

}  // namespace cuda_sim
