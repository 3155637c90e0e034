// Copies and fills, and stream-ordered allocation.
#include <unistd.h>

#include "faults.h"
#include "runtime.h"

namespace cuda_sim {
namespace {

bool pageable(const void* address) {
  Allocation a;
  return !find_allocation(address, &a);
}

// Mappings of cuMemMap may lie one behind the other.
bool leaves_allocation(const void* address, size_t size) {
  const uintptr_t end = reinterpret_cast<uintptr_t>(address) + size;
  Allocation a;
  if (!find_allocation(address, &a)) return false;
  while (end > a.base + a.size) {
    const bool may_go_on = a.kind == MemoryKind::kVirtual;
    if (!may_go_on || !find_allocation(reinterpret_cast<void*>(a.base + a.size), &a) || a.kind != MemoryKind::kVirtual) return true;
  }
  return false;
}

// Between devices a copy passes the link that a fault may be asked for; a device has it where peer access is
// enabled.
PeerFault link_fault(const void* to, const void* from) {
  Allocation a, b;
  if (peer_fault() == PeerFault::kNone || !find_allocation(to, &a) || !find_allocation(from, &b))
    return PeerFault::kNone;
  if (a.on_host() || b.on_host() || a.device == b.device) return PeerFault::kNone;
  std::lock_guard lock(memory_mutex);
  bool linked = device(a.device).peers[static_cast<size_t>(b.device)] ||
                device(b.device).peers[static_cast<size_t>(a.device)];
  return linked ? peer_fault() : PeerFault::kNone;
}

void move_bytes(void* to, const void* from, size_t size) {
  PeerFault fault = link_fault(to, from);
  if (fault == PeerFault::kDrop) return;
  auto* bytes = static_cast<unsigned char*>(mapped(to));
  memmove(bytes, mapped(from), size);
  if (fault == PeerFault::kGarbage)
    for (size_t i = 0; i < size; i++) bytes[i] ^= kGarbageBits;
}

cudaError_t copy_to_symbol(const void* symbol, size_t offset, const void* from, size_t size, Stream* s,
                           bool synchronous) {
  void* address;
  if (!find_symbol(symbol, current_device, &address, nullptr)) return cudaErrorInvalidSymbol;
  return copy(static_cast<char*>(address) + offset, from, size, s, synchronous);
}

cudaError_t copy_from_symbol(void* to, const void* symbol, size_t offset, size_t size, Stream* s,
                             bool synchronous) {
  void* address;
  if (!find_symbol(symbol, current_device, &address, nullptr)) return cudaErrorInvalidSymbol;
  return copy(to, static_cast<char*>(address) + offset, size, s, synchronous);
}

bool is_kind(cudaMemcpyKind kind) { return static_cast<unsigned>(kind) <= cudaMemcpyDefault; }
Stream* legacy_stream() { return device(current_device).legacy; }

}  // namespace

cudaError_t copy(void* to, const void* from, size_t size, Stream* s, bool synchronous) {
  if (!size) return cudaSuccess;
  if (!to || !from || leaves_allocation(to, size) || leaves_allocation(from, size))
    return cudaErrorInvalidValue;
  bool wait = synchronous || pageable(to) || pageable(from);
  OperationPtr op;
  cudaError_t e = submit(
      s, NodeKind::kCopy, [to, from, size] { move_bytes(to, from, size); }, &op);
  if (e != cudaSuccess) return e;
  if (op && wait) op->wait();
  return synchronous ? static_cast<cudaError_t>(device(s->device).sticky.load()) : cudaSuccess;
}

cudaError_t fill(void* to, int value, size_t count, int width, Stream* s) {
  if (!count) return cudaSuccess;
  Allocation a;
  if (!find_allocation(to, &a) || leaves_allocation(to, count * static_cast<size_t>(width)))
    return cudaErrorInvalidValue;
  return submit(s, NodeKind::kSet, [to, value, count, width] {
    void* bytes = mapped(to);
    if (width == 1) memset(bytes, value, count);
    if (width == 2) std::fill_n(static_cast<uint16_t*>(bytes), count, static_cast<uint16_t>(value));
    if (width == 4) std::fill_n(static_cast<uint32_t*>(bytes), count, static_cast<uint32_t>(value));
  });
}

CUDA_API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                                     cudaStream_t stream) {
  CUDA_SIM_ENTER();
  CUDA_SIM_CHECK_DEVICE();
  if (!is_kind(kind)) return set_error(cudaErrorInvalidValue);
  CUDA_SIM_STREAM(s, stream);
  return set_error(copy(to, from, size, s, false));
}
CUDA_API cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  CUDA_SIM_ENTER();
  CUDA_SIM_CHECK_DEVICE();
  CUDA_SIM_NOT_IN_CAPTURE();
  if (!is_kind(kind)) return set_error(cudaErrorInvalidValue);
  return set_error(copy(to, from, size, legacy_stream(), true));
}
CUDA_API cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size,
                                         cudaStream_t stream) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  return set_error(copy(to, from, size, s, false));
}
CUDA_API cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t size) {
  CUDA_SIM_ENTER();
  return set_error(copy(to, from, size, legacy_stream(), true));
}
CUDA_API cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                       size_t width, size_t height, cudaMemcpyKind kind,
                                       cudaStream_t stream) {
  CUDA_SIM_ENTER();
  if (!is_kind(kind)) return set_error(cudaErrorInvalidValue);
  CUDA_SIM_STREAM(s, stream);
  return set_error(submit(s, NodeKind::kCopy, [=] {
    for (size_t row = 0; row < height; row++)
      move_bytes(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                 width);
  }));
}
CUDA_API cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                  size_t width, size_t height, cudaMemcpyKind kind) {
  cudaError_t e = cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
  return e != cudaSuccess ? e : cudaStreamSynchronize(nullptr);
}
CUDA_API cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  CUDA_SIM_ENTER();
  CUDA_SIM_CHECK_DEVICE();
  CUDA_SIM_STREAM(s, stream);
  return set_error(fill(to, value, size, 1, s));
}
CUDA_API cudaError_t cudaMemset(void* to, int value, size_t size) {
  CUDA_SIM_ENTER();
  CUDA_SIM_CHECK_DEVICE();
  return set_error(fill(to, value, size, 1, legacy_stream()));
}
CUDA_API cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned, cudaStream_t) {
  return cudaSuccess;
}
CUDA_API cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) {
  return cudaSuccess;
}

// Pools: one stands for all, and its memory is made and ends as cudaMalloc's.
static const cudaMemPool_t kPool = reinterpret_cast<cudaMemPool_t>(1);

CUDA_API cudaError_t cudaMallocAsync(void** address, size_t size, cudaStream_t) {
  CUDA_SIM_ENTER();
  return set_error(allocate(address, size));
}
CUDA_API cudaError_t cudaMallocFromPoolAsync(void** address, size_t size, cudaMemPool_t,
                                             cudaStream_t stream) {
  return cudaMallocAsync(address, size, stream);
}
CUDA_API cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  Allocation a;
  if (!find_allocation(address, &a) || a.base != reinterpret_cast<uintptr_t>(address) ||
      a.kind != MemoryKind::kDevice)
    return set_error(cudaErrorInvalidValue);
  return set_error(submit(s, NodeKind::kHost, [address, a] {
    remove_allocation(address);
    release_range(a);
  }));
}
CUDA_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = kPool;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int) {
  *pool = kPool;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceSetMemPool(int, cudaMemPool_t) { return cudaSuccess; }
CUDA_API cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  *pool = kPool;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
CUDA_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
CUDA_API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<uint64_t*>(value) = 0;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  return cudaSuccess;
}
CUDA_API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

CUDA_API cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  CUDA_SIM_ENTER();
  return set_error(find_symbol(symbol, current_device, address, nullptr) ? cudaSuccess
                                                                         : cudaErrorInvalidSymbol);
}
CUDA_API cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
  CUDA_SIM_ENTER();
  return set_error(find_symbol(symbol, current_device, nullptr, size) ? cudaSuccess : cudaErrorInvalidSymbol);
}
CUDA_API cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t size, size_t offset,
                                        cudaMemcpyKind) {
  CUDA_SIM_ENTER();
  return set_error(copy_to_symbol(symbol, offset, from, size, legacy_stream(), true));
}
CUDA_API cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t size, size_t offset,
                                             cudaMemcpyKind, cudaStream_t stream) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  return set_error(copy_to_symbol(symbol, offset, from, size, s, false));
}
CUDA_API cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t size, size_t offset,
                                          cudaMemcpyKind) {
  CUDA_SIM_ENTER();
  return set_error(copy_from_symbol(to, symbol, offset, size, legacy_stream(), true));
}
CUDA_API cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t size, size_t offset,
                                               cudaMemcpyKind, cudaStream_t stream) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  return set_error(copy_from_symbol(to, symbol, offset, size, s, false));
}

}  // namespace cuda_sim
