// GPU memory by the driver's virtual memory management: physical memory, which has handles that other processes can
// import, and addresses at which it is mapped.
//
// Any thread; leaves the caller's device and captures as they were. Errors are unhandled_device_error.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "device/cuda/runtime.h"

namespace muster::cuda {

// Why memory of the device can't be made so; empty: it can.
std::string why_no_virtual_memory(int device);

using FabricHandle = std::array<std::byte, 64>;  // the driver's CUmemFabricHandle: good on other hosts of the NVLink domain, too

// A handle of physical memory, which stays as long as any process has one or has it mapped.
class PhysicalMemory {
 public:
  // Exportable in every way the device has. `bytes` are rounded up to what the driver gives at once, see bytes().
  static PhysicalMemory create(int device, size_t bytes);
  // What is mapped at an address of this process: `bytes` from `begin` on. Empty: nothing by this management.
  struct Mapped;
  static std::optional<Mapped> at(const void* p);
  static PhysicalMemory import(const Fd& descriptor, size_t bytes);
  static PhysicalMemory import(const FabricHandle& handle, size_t bytes);
  PhysicalMemory(PhysicalMemory&& o) noexcept;
  PhysicalMemory& operator=(PhysicalMemory&& o) noexcept;
  ~PhysicalMemory();

  size_t bytes() const { return bytes_; }
  // Throw where the memory wasn't made for it.
  Fd descriptor() const;
  FabricHandle fabric_handle() const;

 private:
  friend class MappedMemory;
  PhysicalMemory(unsigned long long handle, size_t bytes) : handle_(handle), bytes_(bytes) {}
  unsigned long long handle_ = 0;  // a CUmemGenericAllocationHandle
  size_t bytes_ = 0;
};
struct PhysicalMemory::Mapped {
  PhysicalMemory memory;
  const std::byte* begin;
};

// Pieces of physical memory at addresses one behind the other.
class MappedMemory {
 public:
  // `devices` reach it.
  MappedMemory(std::vector<PhysicalMemory> pieces, std::span<const int> devices);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  void map(std::span<const int> devices);
  void unmap() noexcept;
  std::vector<PhysicalMemory> pieces_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0, mapped_ = 0;  // pieces
};

struct Allocation {
  const std::byte* begin = nullptr;
  size_t bytes = 0;
};
// That of cudaMalloc, or one mapping of cuMemMap, in which p is. Throws where it is in none.
Allocation allocation_around(const void* p);

// Zeroed memory of a device, which it and all devices of this process that have peer access to it reach.
std::unique_ptr<MappedMemory> make_virtual_memory(int device, size_t bytes);

}  // namespace muster::cuda
