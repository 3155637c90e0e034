#include "device/cuda/memory.h"

#include <cuda.h>

#include <cstring>

#include "base/error.h"
#include "device/cuda/check.h"

namespace muster::cuda {
namespace {

// Of an allocation that failed: how much there was.
std::string free_memory() {
  size_t free_bytes = 0, all_bytes = 0;
  if (cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess)
    return fmt::format("{} MiB of {} are free", free_bytes >> 20, all_bytes >> 20);
  cudaGetLastError();
  return "how much is free isn't known";
}

// What `enqueue` gives to a stream, done. On the default stream it would wait for kernels of the program's
// streams, and those perhaps for a rank of this thread.
template <class Enqueue>
cudaError_t on_own_stream(Enqueue enqueue) {
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return error;
  error = enqueue(stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  const cudaError_t ended = cudaStreamDestroy(stream);
  return error == cudaSuccess ? ended : error;
}

}  // namespace

std::string_view name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::host:
      return "host memory";
    case MemoryKind::pinned:
      return "pinned host memory";
    case MemoryKind::device:
      return "GPU memory";
    case MemoryKind::managed:
      return "managed memory";
  }
  return "?";
}

PointerInfo inspect(const void* p) {
  PointerInfo info;
  if (!p || devices().count == 0) return info;
  const LeavesCapturesAlone relaxed;
  cudaPointerAttributes found;
  if (cudaPointerGetAttributes(&found, p) != cudaSuccess) {
    cudaGetLastError();
    return info;
  }
  switch (found.type) {
    case cudaMemoryTypeDevice:
      info.kind = MemoryKind::device;
      break;
    case cudaMemoryTypeManaged:
      info.kind = MemoryKind::managed;
      break;
    case cudaMemoryTypeHost:
      info.kind = MemoryKind::pinned;
      break;
    default:
      return info;
  }
  info.device = found.device;
  info.on_device = found.devicePointer;
  return info;
}

DeviceMemory::DeviceMemory(int device, size_t bytes) : bytes_(bytes), device_(device) {
  if (bytes == 0) return;
  const DeviceGuard guard(device);
  const LeavesCapturesAlone relaxed;
  if (const cudaError_t error = cudaMalloc(reinterpret_cast<void**>(&data_), bytes); error != cudaSuccess) {
    cudaGetLastError();
    data_ = nullptr;
    fail_cuda(error, fmt::format("allocating {} bytes on {}, where {}", bytes, describe_device(device),
                                 free_memory()));
  }
  try {
    clear_memory(device, data_, bytes);
  } catch (...) {
    release();
    throw;
  }
}

void DeviceMemory::release() noexcept {
  if (!data_) return;
  const LeavesCapturesAlone relaxed;
  if (cudaFree(data_) != cudaSuccess) cudaGetLastError();  // a broken context has lost it anyway
  data_ = nullptr;
}

void DeviceMemory::write(size_t offset, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const DeviceGuard guard(device_);
  const LeavesCapturesAlone relaxed;
  check(on_own_stream([&](cudaStream_t stream) {
          return cudaMemcpyAsync(data_ + offset, from, bytes, cudaMemcpyHostToDevice, stream);
        }),
        "copying {} bytes to {}", bytes, describe_device(device_));
}

void DeviceMemory::read(size_t offset, void* to, size_t bytes) const {
  read_memory(device_, data_ + offset, to, bytes);
}

void clear_memory(int device, std::byte* memory, size_t bytes) {
  const DeviceGuard guard(device);
  const LeavesCapturesAlone relaxed;
  check(on_own_stream([&](cudaStream_t stream) { return cudaMemsetAsync(memory, 0, bytes, stream); }), "clearing {} bytes on {}", bytes,
        describe_device(device));
}

void read_memory(int device, const std::byte* from, void* to, size_t bytes) {
  if (bytes == 0) return;
  const DeviceGuard guard(device);
  const LeavesCapturesAlone relaxed;
  check(on_own_stream([&](cudaStream_t stream) {
          return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream);
        }),
        "copying {} bytes from {}", bytes, describe_device(device));
}

PinnedMemory::PinnedMemory(int device, size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const DeviceGuard guard(device);
  const LeavesCapturesAlone relaxed;
  void* p = nullptr;
  check(cudaHostAlloc(&p, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
        "{} bytes of pinned host memory; ulimit -l and the machine's memory bound them", bytes);
  data_ = static_cast<std::byte*>(p);
  std::memset(data_, 0, bytes);
  void* on_device = nullptr;
  const cudaError_t error = cudaHostGetDevicePointer(&on_device, p, 0);
  if (error != cudaSuccess) {
    release();
    fail_cuda(error, "the address by which GPUs reach pinned host memory");
  }
  on_device_ = static_cast<std::byte*>(on_device);
}

void PinnedMemory::release() noexcept {
  if (!data_) return;
  const LeavesCapturesAlone relaxed;
  if (cudaFreeHost(data_) != cudaSuccess) cudaGetLastError();
  data_ = nullptr;
}

RegisteredMemory::RegisteredMemory(int device, std::byte* memory, size_t bytes) : memory_(memory) {
  const DeviceGuard guard(device);
  const LeavesCapturesAlone relaxed;
  check(cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
        "registering {} bytes of host memory; ulimit -l and the machine's memory bound them", bytes);
  void* on_device = nullptr;
  if (const cudaError_t error = cudaHostGetDevicePointer(&on_device, memory, 0); error != cudaSuccess) {
    if (cudaHostUnregister(memory) != cudaSuccess) cudaGetLastError();
    fail_cuda(error, "the address by which GPUs reach registered host memory");
  }
  on_device_ = static_cast<std::byte*>(on_device);
}

RegisteredMemory::~RegisteredMemory() {
  const LeavesCapturesAlone relaxed;
  if (cudaHostUnregister(memory_) != cudaSuccess) cudaGetLastError();
}

IpcHandle export_memory(const std::byte* memory, int device) {
  static_assert(sizeof(IpcHandle) == sizeof(cudaIpcMemHandle_t));
  const DeviceGuard guard(device);
  cudaIpcMemHandle_t handle;
  check(cudaIpcGetMemHandle(&handle, const_cast<std::byte*>(memory)),
        "sharing memory of {} with other processes", describe_device(device));
  IpcHandle out;
  std::memcpy(out.bytes, &handle, sizeof handle);
  return out;
}

ImportedMemory::ImportedMemory(int device, const IpcHandle& handle) : device_(device) {
  const DeviceGuard guard(device);
  const LeavesCapturesAlone relaxed;
  cudaIpcMemHandle_t theirs;
  std::memcpy(&theirs, handle.bytes, sizeof theirs);
  void* p = nullptr;
  check(cudaIpcOpenMemHandle(&p, theirs, cudaIpcMemLazyEnablePeerAccess),
        "reaching another process's GPU memory from {}; containers must share IPC and PID namespaces",
        describe_device(device));
  data_ = static_cast<std::byte*>(p);
}

ImportedMemory::~ImportedMemory() {
  int before = -1;
  if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(device_) != cudaSuccess ||
      cudaIpcCloseMemHandle(data_) != cudaSuccess)
    cudaGetLastError();
  if (before >= 0) cudaSetDevice(before);
}

}  // namespace muster::cuda
