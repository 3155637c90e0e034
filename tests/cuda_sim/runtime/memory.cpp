// Memory: of devices and of the host, and what an address belongs to.
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "faults.h"
#include "runtime.h"

namespace cuda_sim {

std::mutex memory_mutex;

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kUnit = 65536;             // of device memory

std::map<uintptr_t, Allocation> allocations;  // by base; guarded by memory_mutex
std::atomic<unsigned long long> last_id{0};

}  // namespace

extern "C" {
CSIM_API uint64_t csim_window = 0, csim_window_size = 0, csim_window_delta = 0;
}

char* reserve_window(size_t size, size_t alignment) {
  static const bool strict = option("CUDASIM_STRICT", option("CUDASIM_CHECK", 0)) != 0;
  static std::mutex mutex;
  static uint64_t next = 0;
  if (!strict) return nullptr;
  std::lock_guard lock(mutex);
  if (!csim_window_size) {
    constexpr uint64_t kSize = 1ull << 40;
    void* window = mmap(nullptr, 2 * kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (window == MAP_FAILED) {
      perror("cuda_sim: addresses of devices' memory");
      abort();
    }
    csim_window = next = reinterpret_cast<uint64_t>(window);
    csim_window_delta = csim_window_size = kSize;
  }
  next = round_up(next, alignment);
  auto* reserved = reinterpret_cast<char*>(next);
  next += size + (2 << 20);
  return reserved;
}

void add_allocation(void* base, size_t size, MemoryKind kind, int device, unsigned flags) {
  auto key = reinterpret_cast<uintptr_t>(base);
  std::lock_guard lock(memory_mutex);
  allocations[key] = {key, size, kind, device, flags, ++last_id, 0};
}

void remove_allocation(const void* base) {
  std::lock_guard lock(memory_mutex);
  allocations.erase(reinterpret_cast<uintptr_t>(base));
  ++last_id;
}

void set_access(uintptr_t from, size_t size, int device, bool may) {
  const uint64_t bit = uint64_t{1} << device;
  std::lock_guard lock(memory_mutex);
  for (auto a = allocations.lower_bound(from); a != allocations.end() && a->first < from + size; ++a)
    a->second.access = may ? a->second.access | bit : a->second.access & ~bit;
  ++last_id;
}

unsigned long long allocation_generation() { return last_id.load(std::memory_order_relaxed); }

bool find_allocation(const void* address, Allocation* found) {
  auto key = reinterpret_cast<uintptr_t>(address);
  std::lock_guard lock(memory_mutex);
  auto after = allocations.upper_bound(key);
  if (after == allocations.begin()) return false;
  const Allocation& a = std::prev(after)->second;
  if (key >= a.base + a.size) return false;
  *found = a;
  return true;
}

static bool find_base(const void* base, Allocation* found) {
  return find_allocation(base, found) && found->base == reinterpret_cast<uintptr_t>(base);
}

// Takes a range out of the device's free ones, after the one taken last, so that a freed address isn't used
// again soon. Null: none is large enough.
static char* take_range(Device& d, size_t need) {
  std::lock_guard lock(memory_mutex);
  for (size_t start : {d.next_fit, size_t{0}})
    for (auto range = d.free_ranges.begin(); range != d.free_ranges.end(); ++range) {
      size_t begin = range->first, end = range->first + range->second, from = std::max(begin, start);
      if (from >= end || end - from < need) continue;
      d.free_ranges.erase(range);
      if (from > begin) d.free_ranges[begin] = from - begin;
      if (end > from + need) d.free_ranges[from + need] = end - from - need;
      d.next_fit = from + need;
      d.used += need;
      return d.arena + from;
    }
  return nullptr;
}

cudaError_t allocate(void** address, size_t size) {
  if (!address) return cudaErrorInvalidValue;
  *address = nullptr;
  if (size == 0) return cudaSuccess;
  if (allocation_fails(size)) return cudaErrorMemoryAllocation;
  // An inaccessible unit follows every allocation.
  char* range = take_range(device(current_device), round_up(size, kUnit) + kUnit);
  size_t bytes = round_up(size, kPage);
  if (!range || mprotect(mapped(range), bytes, PROT_READ | PROT_WRITE)) return cudaErrorMemoryAllocation;
  if (size <= kPatternLimit) memset(mapped(range), kPattern, bytes);
  add_allocation(range, size, MemoryKind::kDevice, current_device);
  *address = range;
  return cudaSuccess;
}

void release_range(const Allocation& a) {
  Device& d = device(a.device);
  auto* base = reinterpret_cast<char*>(a.base);
  size_t offset = static_cast<size_t>(base - d.arena), bytes = round_up(a.size, kPage),
         length = round_up(a.size, kUnit) + kUnit;
  mprotect(mapped(base), bytes, PROT_NONE);
  // Gives the pages back; where that fails they merely stay.
  [[maybe_unused]] int kept = fallocate(d.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                        static_cast<off_t>(offset), static_cast<off_t>(bytes));
  std::lock_guard lock(memory_mutex);
  d.used -= length;
  auto range = d.free_ranges.emplace(offset, length).first;
  if (auto next = std::next(range); next != d.free_ranges.end() && offset + length == next->first) {
    range->second += next->second;
    d.free_ranges.erase(next);
  }
  if (range == d.free_ranges.begin()) return;
  if (auto before = std::prev(range); before->first + before->second == offset) {
    before->second += range->second;
    d.free_ranges.erase(range);
  }
}

cudaError_t release(void* address) {
  Allocation a;
  if (!find_base(address, &a) || (a.kind != MemoryKind::kDevice && a.kind != MemoryKind::kManaged))
    return cudaErrorInvalidValue;
  wait_for_device(a.device);  // as cudaFree does
  remove_allocation(address);
  if (a.kind == MemoryKind::kManaged)
    munmap(address, round_up(a.size, kPage));
  else
    release_range(a);
  return cudaSuccess;
}

static cudaError_t allocate_on_host(void** address, size_t size, MemoryKind kind, unsigned flags) {
  if (!address) return cudaErrorInvalidValue;
  *address = nullptr;
  if (!size) return cudaSuccess;
  if (allocation_fails(size)) return cudaErrorMemoryAllocation;
  void* pages =
      mmap(nullptr, round_up(size, kPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return cudaErrorMemoryAllocation;
  add_allocation(pages, size, kind, current_device, flags);
  *address = pages;
  return cudaSuccess;
}

CUDA_API cudaError_t cudaMalloc(void** address, size_t size) {
  CUDA_SIM_ENTER();
  CUDA_SIM_CHECK_DEVICE();
  CUDA_SIM_NOT_IN_CAPTURE();
  return set_error(allocate(address, size));
}
CUDA_API cudaError_t cudaMallocManaged(void** address, size_t size, unsigned) {
  CUDA_SIM_ENTER();
  CUDA_SIM_CHECK_DEVICE();
  return set_error(allocate_on_host(address, size, MemoryKind::kManaged, 0));
}
CUDA_API cudaError_t cudaFree(void* address) {
  CUDA_SIM_ENTER();
  if (!address) {
    CUDA_SIM_CHECK_DEVICE();
    return cudaSuccess;
  }
  CUDA_SIM_NOT_IN_CAPTURE();
  return set_error(release(address));
}
CUDA_API cudaError_t cudaHostAlloc(void** address, size_t size, unsigned flags) {
  CUDA_SIM_ENTER();
  CUDA_SIM_CHECK_DEVICE();
  CUDA_SIM_NOT_IN_CAPTURE();
  return set_error(allocate_on_host(address, size, MemoryKind::kHost, flags));
}
CUDA_API cudaError_t cudaMallocHost(void** address, size_t size) { return cudaHostAlloc(address, size, 0); }
CUDA_API cudaError_t cudaFreeHost(void* address) {
  CUDA_SIM_ENTER();
  if (!address) return cudaSuccess;
  CUDA_SIM_NOT_IN_CAPTURE();
  Allocation a;
  if (!find_base(address, &a) || a.kind != MemoryKind::kHost) return set_error(cudaErrorInvalidValue);
  wait_for_device(current_device);
  remove_allocation(address);
  munmap(address, round_up(a.size, kPage));
  return cudaSuccess;
}
CUDA_API cudaError_t cudaHostRegister(void* address, size_t size, unsigned flags) {
  CUDA_SIM_ENTER();
  CUDA_SIM_CHECK_DEVICE();
  if (!address || !size) return set_error(cudaErrorInvalidValue);
  Allocation a;
  if (find_allocation(address, &a) || find_allocation(static_cast<char*>(address) + size - 1, &a))
    return set_error(cudaErrorHostMemoryAlreadyRegistered);
  add_allocation(address, size, MemoryKind::kRegistered, current_device, flags);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaHostUnregister(void* address) {
  CUDA_SIM_ENTER();
  Allocation a;
  if (!find_base(address, &a) || a.kind != MemoryKind::kRegistered)
    return set_error(cudaErrorHostMemoryNotRegistered);
  remove_allocation(address);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaHostGetDevicePointer(void** on_device, void* on_host, unsigned) {
  CUDA_SIM_ENTER();
  Allocation a;
  if (!find_allocation(on_host, &a) || !a.on_host()) return set_error(cudaErrorInvalidValue);
  *on_device = on_host;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaHostGetFlags(unsigned* flags, void* address) {
  CUDA_SIM_ENTER();
  Allocation a;
  if (!find_allocation(address, &a) || !a.on_host()) return set_error(cudaErrorInvalidValue);
  *flags = a.flags;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  CUDA_SIM_ENTER();
  CUDA_SIM_CHECK_DEVICE();
  const Device& d = device(current_device);
  std::lock_guard lock(memory_mutex);
  if (total) *total = d.total;
  if (free_bytes) *free_bytes = d.total - d.used;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* p, const void* address) {
  CUDA_SIM_ENTER();
  memset(p, 0, sizeof *p);
  auto* pointer = const_cast<void*>(address);
  Allocation a;
  if (!find_allocation(address, &a)) {
    p->type = cudaMemoryTypeUnregistered;
    p->device = cudaInvalidDeviceId;
    p->hostPointer = pointer;
    return cudaSuccess;
  }
  p->type = a.on_host()                      ? cudaMemoryTypeHost
            : a.kind == MemoryKind::kManaged ? cudaMemoryTypeManaged
                                             : cudaMemoryTypeDevice;
  p->device = a.device;
  p->devicePointer = pointer;
  if (p->type != cudaMemoryTypeDevice) p->hostPointer = pointer;
  return cudaSuccess;
}

// Memory checker, for kernels compiled with it: an access must lie inside one allocation that the device may
// touch.
extern "C" CSIM_API void csim_check_access(uint64_t address, uint32_t bytes, Thread* t) {
  static thread_local Allocation last;  // whose access was checked last, by which device, when
  static thread_local unsigned long long generation = 0;
  static thread_local int last_device = -1;
  if (generation == allocation_generation() && last_device == t->device && address >= last.base &&
      address + bytes <= last.base + last.size)
    return;
  unsigned long long now = allocation_generation();
  Allocation a;
  const char* why = nullptr;
  if (!find_allocation(reinterpret_cast<void*>(address), &a))
    why = "no allocation is there (freed, pageable memory of the host, or out of bounds)";
  else if (address + bytes > a.base + a.size)
    why = "it runs past the end of its allocation";
  else if (a.kind == MemoryKind::kDevice && a.device != t->device &&
           !device(t->device).peers[static_cast<size_t>(a.device)])
    why = "it is memory of another device, without peer access";
  else if (a.kind == MemoryKind::kVirtual && !(a.access >> t->device & 1))
    why = "cuMemSetAccess hasn't given this device access";
  if (!why) {
    last = a;
    generation = now;
    last_device = t->device;
    return;
  }
  fprintf(stderr,
          "cuda_sim: memory checker: %u bytes at %p, device %d, block (%u,%u,%u), thread (%u,%u,%u): %s\n",
          bytes, reinterpret_cast<void*>(address), t->device, t->bid.x, t->bid.y, t->bid.z, t->tid.x,
          t->tid.y, t->tid.z, why);
  csim_fault();
}

}  // namespace cuda_sim
