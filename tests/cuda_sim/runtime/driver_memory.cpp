// Virtual memory management: physical memory is a file, a reserved range of addresses an inaccessible
// mapping.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "faults.h"
#include "runtime.h"

namespace cuda_sim {
namespace {

constexpr size_t kGranularity = 2 << 20;

struct Physical {
  int fd;
  size_t size;
  CUmemAllocationProp properties;
  bool imported;  // its process accounts for it
  std::atomic<int> references{1};

  bool on_device() const { return properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE; }
};
struct Mapping {
  Physical* memory;
  size_t size;
};
std::mutex mappings_mutex;
std::map<uintptr_t, Mapping>& mappings() {
  static auto* all = new std::map<uintptr_t, Mapping>;
  return *all;
}

Physical* as_physical(CUmemGenericAllocationHandle handle) { return reinterpret_cast<Physical*>(handle); }
CUmemGenericAllocationHandle handle_of(Physical* p) {
  return reinterpret_cast<CUmemGenericAllocationHandle>(p);
}
void* as_pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

void drop(Physical* p) {
  if (p->references.fetch_sub(1) > 1) return;
  close(p->fd);
  if (p->on_device() && !p->imported) {
    Device& d = device(p->properties.location.id);
    std::lock_guard lock(memory_mutex);
    d.used -= p->size;
  }
  delete p;
}

constexpr uint32_t kFabricMagic = 0x46614272;
struct FabricHandle {
  uint32_t magic;
  int pid, fd;
};
static_assert(sizeof(FabricHandle) <= sizeof(CUmemFabricHandle));

constexpr int kShareable = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
// Other processes see by its name of which device a file is memory.
constexpr const char* kFileName = "cuda_sim-memory-";

bool take_memory(Device& d, size_t size) {
  std::lock_guard lock(memory_mutex);
  if (d.used + size > d.total) return false;
  d.used += size;
  return true;
}

int make_file(const std::string& name, size_t size) {
  int fd = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (fd < 0) return fd;
  if (ftruncate(fd, static_cast<off_t>(size))) {
    close(fd);
    return -1;
  }
  if (size > kPatternLimit) return fd;
  void* bytes = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (bytes == MAP_FAILED) return fd;
  memset(bytes, kPattern, size);
  munmap(bytes, size);
  return fd;
}

int device_of_file(int fd) {
  char path[64], name[128] = {};
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (readlink(path, name, sizeof name - 1) < 0) return current_device;
  const char* number = strstr(name, kFileName);
  return number ? index_of(atoi(number + strlen(kFileName))) : current_device;
}

CUresult import_file(CUmemGenericAllocationHandle* handle, int fd, CUmemAllocationHandleType type) {
  struct stat file;
  if (fd < 0 || fstat(fd, &file)) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp properties;
  memset(&properties, 0, sizeof properties);
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device_of_file(fd);
  properties.requestedHandleTypes = type;
  *handle = handle_of(new Physical{fd, static_cast<size_t>(file.st_size), properties, true});
  return CUDA_SUCCESS;
}

void close_range(void* address, size_t size) {
  mmap(mapped(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace

CUDA_API CUresult cuMemGetAllocationGranularity(size_t* size, const CUmemAllocationProp*,
                                                CUmemAllocationGranularity_flags) {
  *size = kGranularity;
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                              const CUmemAllocationProp* properties, unsigned long long) {
  if (!handle || !properties || !size || size % kGranularity) return CUDA_ERROR_INVALID_VALUE;
  if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (properties->requestedHandleTypes & ~kShareable) {
    fprintf(stderr, "cuda_sim: cuMemCreate: only file descriptors and fabric handles are simulated\n");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const bool on_device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const int index = on_device ? properties->location.id : 0;
  if (!vmm_supported()) return CUDA_ERROR_NOT_SUPPORTED;
  if (index < 0 || index >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  if (properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC && fabric() != kFabric)
    return fabric() == kNoFabric ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_PERMITTED;
  Device& d = device(index);
  if (allocation_fails(size) || (on_device && !take_memory(d, size))) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::string name = kFileName + std::to_string(d.id);
  *handle = handle_of(new Physical{make_file(name, size), size, *properties, false});
  if (as_physical(*handle)->fd >= 0) return CUDA_SUCCESS;
  drop(as_physical(*handle));
  return CUDA_ERROR_OUT_OF_MEMORY;
}
CUDA_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  drop(as_physical(handle));
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr,
                                      unsigned long long) {
  if (!address || !size || size % kGranularity) return CUDA_ERROR_INVALID_VALUE;
  alignment = std::max(alignment, kGranularity);
  if (char* reserved = reserve_window(size, alignment)) {
    *address = reinterpret_cast<CUdeviceptr>(reserved);
    return CUDA_SUCCESS;
  }
  void* range =
      mmap(nullptr, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  auto begin = reinterpret_cast<uintptr_t>(range), aligned = round_up(begin, alignment),
       end = begin + size + alignment;
  if (aligned > begin) munmap(range, aligned - begin);
  if (aligned + size < end) munmap(as_pointer(aligned + size), end - aligned - size);
  *address = aligned;
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  if (!csim_window_size) munmap(as_pointer(address), size);
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                           CUmemGenericAllocationHandle handle, unsigned long long) {
  Physical* p = as_physical(handle);
  if (offset || size > p->size || size % kGranularity || address % kGranularity)
    return CUDA_ERROR_INVALID_VALUE;
  if (mmap(mapped(as_pointer(address)), size, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, p->fd, 0) ==
      MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  p->references++;
  {
    std::lock_guard lock(mappings_mutex);
    mappings()[address] = {p, size};
  }
  bool on_device = p->on_device();
  add_allocation(as_pointer(address), size, on_device ? MemoryKind::kVirtual : MemoryKind::kHost,
                 on_device ? p->properties.location.id : 0);
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* access,
                                 size_t count) {
  for (size_t i = 0; i < count; i++) {
    const bool may = access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (may && mprotect(mapped(as_pointer(address)), size, PROT_READ | PROT_WRITE)) return CUDA_ERROR_INVALID_VALUE;
    if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE) set_access(address, size, access[i].location.id, may);
  }
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  Physical* p;
  {
    std::lock_guard lock(mappings_mutex);
    auto found = mappings().find(address);
    if (found == mappings().end() || found->second.size != size) return CUDA_ERROR_INVALID_VALUE;
    p = found->second.memory;
    mappings().erase(found);
  }
  remove_allocation(as_pointer(address));
  close_range(as_pointer(address), size);
  drop(p);
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  auto key = reinterpret_cast<uintptr_t>(address);
  std::lock_guard lock(mappings_mutex);
  auto after = mappings().upper_bound(key);
  if (after == mappings().begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [base, mapping] = *std::prev(after);
  if (key >= base + mapping.size) return CUDA_ERROR_INVALID_VALUE;
  mapping.memory->references++;
  *handle = handle_of(mapping.memory);
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                         CUmemGenericAllocationHandle handle) {
  *properties = as_physical(handle)->properties;
  return CUDA_SUCCESS;
}
CUDA_API CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                               CUmemAllocationHandleType type, unsigned long long) {
  const Physical& p = *as_physical(handle);
  if (!(type & kShareable) || !(p.properties.requestedHandleTypes & type)) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
    const FabricHandle h{kFabricMagic, getpid(), p.fd};
    memset(out, 0, sizeof(CUmemFabricHandle));
    memcpy(out, &h, sizeof h);
    return CUDA_SUCCESS;
  }
  const int fd = fcntl(p.fd, F_DUPFD_CLOEXEC, 0);
  *static_cast<int*>(out) = fd;
  return fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
CUDA_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shared,
                                                 CUmemAllocationHandleType type) {
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
    FabricHandle h;
    memcpy(&h, shared, sizeof h);
    if (h.magic != kFabricMagic || fabric() != kFabric) return CUDA_ERROR_INVALID_VALUE;
    return import_file(handle, open_fd_of(h.pid, h.fd), type);
  }
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  int fd = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(shared)), F_DUPFD_CLOEXEC, 0);
  return import_file(handle, fd, type);
}

}  // namespace cuda_sim
