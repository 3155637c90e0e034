// The driver API: devices, contexts, pointers, streams' memory operations, launches.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "runtime.h"

#undef cuGetProcAddress

namespace cuda_sim {
namespace {

CUresult as_result(cudaError_t e) {
  return static_cast<CUresult>(e);
}  // both number the errors used here alike

struct Context {
  int device;
};
Context* context_of(int index) {
  static auto contexts = [] {
    std::array<Context, 64> all;
    for (size_t i = 0; i < all.size(); i++) all[i].device = static_cast<int>(i);
    return all;
  }();
  return &contexts[static_cast<size_t>(index)];
}
CUcontext current_context() { return reinterpret_cast<CUcontext>(context_of(current_device)); }

CUresult write_value(CUstream stream, CUdeviceptr address, uint64_t value, bool wide) {
  Stream* s = find_stream(reinterpret_cast<cudaStream_t>(stream));
  if (!s) return CUDA_ERROR_INVALID_HANDLE;
  void* at = mapped(reinterpret_cast<void*>(address));
  return as_result(submit(s, NodeKind::kSet, [=] {
    if (wide)
      __atomic_store_n(static_cast<uint64_t*>(at), value, __ATOMIC_RELEASE);
    else
      __atomic_store_n(static_cast<uint32_t*>(at), static_cast<uint32_t>(value), __ATOMIC_RELEASE);
  }));
}

bool satisfied(uint64_t now, uint64_t value, unsigned flags, bool wide) {
  int64_t difference = wide ? static_cast<int64_t>(now - value) : static_cast<int32_t>(now - value);
  uint64_t mask = wide ? ~uint64_t{0} : 0xffffffffu;
  switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return difference >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return difference == 0;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & value) != 0;
    default:  // CU_STREAM_WAIT_VALUE_NOR
      return (~(now | value) & mask) != 0;
  }
}

CUresult wait_value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags, bool wide) {
  Stream* s = find_stream(reinterpret_cast<cudaStream_t>(stream));
  if (!s) return CUDA_ERROR_INVALID_HANDLE;
  void* at = mapped(reinterpret_cast<void*>(address));
  return as_result(submit(s, NodeKind::kSet, [=] {
    auto now = [&] {
      return wide ? __atomic_load_n(static_cast<uint64_t*>(at), __ATOMIC_ACQUIRE)
                  : __atomic_load_n(static_cast<uint32_t*>(at), __ATOMIC_ACQUIRE);
    };
    while (!satisfied(now(), value, flags, wide)) usleep(20);
  }));
}

// A driver function by its name without a version: the newest there is.
void* find_driver_function(const char* name) {
  for (const char* version : {"_v4", "_v3", "_v2", ""})
    if (void* f = dlsym(RTLD_DEFAULT, (std::string(name) + version).c_str())) return f;
  return nullptr;
}

}  // namespace

CUDA_API CUresult cuInit(unsigned) { return device_count() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }
CUDA_API CUresult cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuDeviceGetCount(int* count) {
  *count = device_count();
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuDeviceGet(CUdevice* handle, int index) {
  if (index < 0 || index >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  *handle = index;
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  snprintf(name, static_cast<size_t>(size), "%s", kDeviceName);
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice index) {
  *value = device_attribute(attribute, index);
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuDeviceTotalMem_v2(size_t* size, CUdevice index) {
  *size = device(index).total;
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuDeviceGetPCIBusId(char* text, int size, CUdevice index) {
  return as_result(cudaDeviceGetPCIBusId(text, size, index));
}
CUDA_API CUresult cuDeviceCanAccessPeer(int* can, CUdevice index, CUdevice peer) {
  return as_result(cudaDeviceCanAccessPeer(can, index, peer));
}
CUDA_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice index) {
  if (index < 0 || index >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  *context = reinterpret_cast<CUcontext>(context_of(index));
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
CUDA_API CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current_context();
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuCtxSetCurrent(CUcontext context) {
  if (context) current_device = reinterpret_cast<Context*>(context)->device;
  return CUDA_SUCCESS;
}
static thread_local std::vector<int> pushed_devices;
CUDA_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  pushed_devices.push_back(current_device);
  return cuCtxSetCurrent(context);
}
CUDA_API CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (pushed_devices.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = current_context();
  current_device = pushed_devices.back();
  pushed_devices.pop_back();
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuCtxGetDevice(CUdevice* index) {
  *index = current_device;
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuGetErrorString(CUresult e, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(e));
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuGetErrorName(CUresult e, const char** name) {
  *name = cudaGetErrorName(static_cast<cudaError_t>(e));
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t size) {
  return as_result(cudaMalloc(reinterpret_cast<void**>(address), size));
}
CUDA_API CUresult cuMemFree_v2(CUdeviceptr address) {
  return as_result(cudaFree(reinterpret_cast<void*>(address)));
}
CUDA_API CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  Allocation a;
  if (!find_allocation(reinterpret_cast<void*>(address), &a)) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = a.base;
  if (size) *size = a.size;
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  Allocation a;
  if (!find_allocation(reinterpret_cast<void*>(address), &a)) return CUDA_ERROR_INVALID_VALUE;
  auto give = [out](auto value) {
    memcpy(out, &value, sizeof value);
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return give(reinterpret_cast<CUcontext>(context_of(a.device)));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give(a.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return give(address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return a.on_host() ? give(reinterpret_cast<void*>(address)) : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return give(a.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return give(static_cast<int>(a.kind == MemoryKind::kManaged));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give(a.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return give(static_cast<int>(a.kind == MemoryKind::kDevice));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return give(static_cast<CUdeviceptr>(a.base));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return give(a.size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return give(1);
    default:
      fprintf(stderr, "cuda_sim: cuPointerGetAttribute: attribute %d is not simulated\n",
              static_cast<int>(attribute));
      return CUDA_ERROR_INVALID_VALUE;
  }
}
CUDA_API CUresult cuPointerSetAttribute(const void*, CUpointer_attribute, CUdeviceptr) {
  return CUDA_SUCCESS;
}

CUDA_API CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  return write_value(stream, address, value, false);
}
CUDA_API CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
  return write_value(stream, address, value, true);
}
CUDA_API CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                         unsigned flags) {
  return wait_value(stream, address, value, flags, false);
}
CUDA_API CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                         unsigned flags) {
  return wait_value(stream, address, value, flags, true);
}
CUDA_API CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* all,
                                        unsigned) {
  for (unsigned i = 0; i < count; i++) {
    const CUstreamBatchMemOpParams& op = all[i];
    CUresult e = CUDA_ERROR_NOT_SUPPORTED;
    switch (op.operation) {
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        e = write_value(stream, op.writeValue.address, op.writeValue.value, false);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        e = write_value(stream, op.writeValue.address, op.writeValue.value64, true);
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        e = wait_value(stream, op.waitValue.address, op.waitValue.value, op.waitValue.flags, false);
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        e = wait_value(stream, op.waitValue.address, op.waitValue.value64, op.waitValue.flags, true);
        break;
      default:
        fprintf(stderr, "cuda_sim: cuStreamBatchMemOp: operation %d is not simulated\n",
                static_cast<int>(op.operation));
    }
    if (e != CUDA_SUCCESS) return e;
  }
  return CUDA_SUCCESS;
}

CUDA_API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void* argument) {
  return as_result(cudaLaunchHostFunc(reinterpret_cast<cudaStream_t>(stream), fn, argument));
}
CUDA_API CUresult cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z,
                                 unsigned dynamic_shared, CUstream stream, void** arguments, void**) {
  return as_result(cudaLaunchKernel(f, dim3(grid_x, grid_y, grid_z), dim3(block_x, block_y, block_z),
                                    arguments, dynamic_shared, reinterpret_cast<cudaStream_t>(stream)));
}
CUDA_API CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** arguments, void** extra) {
  for (unsigned i = 0; i < c->numAttrs; i++)
    if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      fprintf(stderr, "cuda_sim: cuLaunchKernelEx: clusters are not simulated\n");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  return cuLaunchKernel(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
                        c->sharedMemBytes, c->hStream, arguments, extra);
}

CUDA_API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                      unsigned long long,
                                                      cudaDriverEntryPointQueryResult* result) {
  *function = find_driver_function(name);
  if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(name, function, kDriverVersion, flags, result);
}
CUDA_API CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t,
                                      CUdriverProcAddressQueryResult* result) {
  *function = find_driver_function(name);
  if (result) *result = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace cuda_sim
