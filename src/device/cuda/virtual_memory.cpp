#include "device/cuda/virtual_memory.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/math.h"
#include "device/cuda/check.h"
#include "device/cuda/driver.h"
#include "device/cuda/memory.h"

namespace muster::cuda {
namespace {

// The device's context is there and current, which some of the driver's calls want.
class InContext {
 public:
  explicit InContext(int device) : guard_(device) { check(cudaFree(nullptr), "a context on {}", describe_device(device)); }

 private:
  const LeavesCapturesAlone relaxed_;
  const DeviceGuard guard_;
};

bool has(int device, CUdevice_attribute attribute) {
  int value = 0;
  return driver().cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

CUmemLocation location_of(int device) {
  CUmemLocation where{};
  where.type = CU_MEM_LOCATION_TYPE_DEVICE;
  where.id = device;
  return where;
}

CUmemAllocationProp properties_for(int device, bool fabric) {
  CUmemAllocationProp p{};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location = location_of(device);
  p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (fabric)
    p.requestedHandleTypes =
        static_cast<CUmemAllocationHandleType>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC);
  p.allocFlags.gpuDirectRDMACapable = has(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  return p;
}

size_t granularity(const CUmemAllocationProp& p) {
  size_t bytes = 0;
  check(driver().cuMemGetAllocationGranularity(&bytes, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "the size of pages of {}", describe_device(p.location.id));
  return bytes;
}

CUdeviceptr address_of(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

std::vector<int> devices_that_reach(int device) {
  std::vector<int> all{device};
  for (int d = 0; d < devices().count; ++d) {
    int can = 0;
    if (d == device) continue;
    check(cudaDeviceCanAccessPeer(&can, d, device), "whether GPU {} reaches GPU {}", d, device);
    if (can) all.push_back(d);
  }
  return all;
}

}  // namespace

std::string why_no_virtual_memory(int device) {
  const Driver& d = driver();
  if (!d.why_none.empty()) return d.why_none;
  if (!has(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
    return fmt::format("{} has no virtual memory management", describe_device(device));
  if (!has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
    return fmt::format("{} has no memory that is shared by file descriptors", describe_device(device));
  return {};
}

PhysicalMemory PhysicalMemory::create(int device, size_t bytes) {
  const InContext context(device);
  const bool fabric = has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
  CUmemAllocationProp p = properties_for(device, fabric);
  const size_t rounded = ceil_div(bytes, granularity(p)) * granularity(p);
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = driver().cuMemCreate(&handle, rounded, &p, 0);
  if (fabric && (result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED)) {
    log_debug(Topic::p2p, "{} has fabric handles, but this process may not use them: error {} of cuMemCreate", describe_device(device),
              static_cast<int>(result));
    p = properties_for(device, false);
    result = driver().cuMemCreate(&handle, rounded, &p, 0);
  }
  check(result, "allocating {} bytes on {}", rounded, describe_device(device));
  return {handle, rounded};
}

std::optional<PhysicalMemory::Mapped> PhysicalMemory::at(const void* p) {
  if (!driver().why_none.empty()) return std::nullopt;
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
  if (driver().cuMemGetAddressRange(&begin, &bytes, address_of(p)) != CUDA_SUCCESS ||
      driver().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(begin)) != CUDA_SUCCESS)
    return std::nullopt;
  return Mapped{{handle, bytes}, reinterpret_cast<const std::byte*>(begin)};
}

PhysicalMemory PhysicalMemory::import(const Fd& descriptor, size_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  check(driver().cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor.get())),
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "importing {} bytes of another process's GPU memory by a descriptor", bytes);
  return {handle, bytes};
}

PhysicalMemory PhysicalMemory::import(const FabricHandle& handle, size_t bytes) {
  static_assert(sizeof(FabricHandle) == sizeof(CUmemFabricHandle));
  FabricHandle theirs = handle;
  CUmemGenericAllocationHandle own = 0;
  check(driver().cuMemImportFromShareableHandle(&own, theirs.data(), CU_MEM_HANDLE_TYPE_FABRIC),
        "importing {} bytes of another process's GPU memory by a fabric handle", bytes);
  return {own, bytes};
}

PhysicalMemory::PhysicalMemory(PhysicalMemory&& o) noexcept
    : handle_(std::exchange(o.handle_, 0)), bytes_(std::exchange(o.bytes_, 0)) {}

PhysicalMemory& PhysicalMemory::operator=(PhysicalMemory&& o) noexcept {
  std::swap(handle_, o.handle_);
  std::swap(bytes_, o.bytes_);
  return *this;
}

PhysicalMemory::~PhysicalMemory() {
  if (handle_) driver().cuMemRelease(handle_);  // a driver that shuts down has lost it anyway
}

Fd PhysicalMemory::descriptor() const {
  int fd = -1;
  check(driver().cuMemExportToShareableHandle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "a file descriptor of {} bytes of GPU memory, which must have been made for it", bytes_);
  return Fd(fd);
}

FabricHandle PhysicalMemory::fabric_handle() const {
  FabricHandle out{};
  check(driver().cuMemExportToShareableHandle(out.data(), handle_, CU_MEM_HANDLE_TYPE_FABRIC, 0),
        "a fabric handle of {} bytes of GPU memory, which must have been made for it", bytes_);
  return out;
}

MappedMemory::MappedMemory(std::vector<PhysicalMemory> pieces, std::span<const int> devices) : pieces_(std::move(pieces)) {
  for (const PhysicalMemory& p : pieces_) bytes_ += p.bytes();
  const InContext context(devices.front());
  CUdeviceptr address = 0;
  check(driver().cuMemAddressReserve(&address, bytes_, 0, 0, 0), "reserving {} bytes of addresses for GPU memory", bytes_);
  data_ = reinterpret_cast<std::byte*>(address);
  try {
    map(devices);
  } catch (...) {
    unmap();
    throw;
  }
}

void MappedMemory::map(std::span<const int> devices) {
  std::vector<CUmemAccessDesc> access;
  for (const int d : devices) access.push_back({location_of(d), CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  CUdeviceptr at = address_of(data_);
  for (const PhysicalMemory& p : pieces_) {
    check(driver().cuMemMap(at, p.bytes(), 0, p.handle_, 0), "mapping {} bytes of GPU memory", p.bytes());
    ++mapped_;
    check(driver().cuMemSetAccess(at, p.bytes(), access.data(), access.size()), "giving {} access to {} bytes of GPU memory",
          describe_device(devices.front()), p.bytes());
    at += p.bytes();
  }
}

void MappedMemory::unmap() noexcept {
  CUdeviceptr at = address_of(data_);
  for (size_t i = 0; i < mapped_; ++i) {
    driver().cuMemUnmap(at, pieces_[i].bytes());  // fails where a broken context has lost it anyway
    at += pieces_[i].bytes();
  }
  driver().cuMemAddressFree(address_of(data_), bytes_);
}

MappedMemory::~MappedMemory() { unmap(); }

Allocation allocation_around(const void* p) {
  const Driver& d = driver();
  if (!d.why_none.empty()) fail(Result::unhandled_device_error, "where the allocation of {} begins isn't known: {}", p, d.why_none);
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  check(d.cuMemGetAddressRange(&begin, &bytes, address_of(p)), "the allocation that {} is in", p);
  return {reinterpret_cast<const std::byte*>(begin), bytes};
}

std::unique_ptr<MappedMemory> make_virtual_memory(int device, size_t bytes) {
  std::vector<PhysicalMemory> pieces;
  pieces.push_back(PhysicalMemory::create(device, bytes));
  auto memory = std::make_unique<MappedMemory>(std::move(pieces), devices_that_reach(device));
  clear_memory(device, memory->data(), memory->size());
  return memory;
}

}  // namespace muster::cuda
