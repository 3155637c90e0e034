#include "comm/cuda/allocations.h"

#include <map>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "device/cuda/check.h"
#include "device/cuda/virtual_memory.h"

namespace muster::cuda {
namespace {

struct VirtualAllocation {
  int device;
  std::unique_ptr<MappedMemory> memory;
};
// By address.
struct VirtualAllocations {
  std::mutex mutex;
  std::map<void*, VirtualAllocation> living;
};
VirtualAllocations& virtual_allocations() {
  static auto* const all = new VirtualAllocations;  // programs may free after this library's statics
  return *all;
}

void* allocate_virtual(int device, size_t bytes) {
  auto memory = make_virtual_memory(device, bytes);
  void* const p = memory->data();
  VirtualAllocations& all = virtual_allocations();
  const std::lock_guard lock(all.mutex);
  all.living[p] = {device, std::move(memory)};
  return p;
}

// Empty memory where it is none of these.
VirtualAllocation take_virtual(void* p) {
  VirtualAllocations& all = virtual_allocations();
  const std::lock_guard lock(all.mutex);
  const auto found = all.living.extract(p);
  return found ? std::move(found.mapped()) : VirtualAllocation{};
}

}  // namespace

std::string refusal_of_virtual_memory(int device) {
  if (Options::inspect().integer("NCCL_CUMEM_ENABLE") == 0) return "NCCL_CUMEM_ENABLE=0";
  return why_no_virtual_memory(device);
}

void* allocate_gpu_memory(size_t bytes) {
  const int device = current_device();
  std::string refusal = bytes == 0 ? "nothing is wanted" : refusal_of_virtual_memory(device);
  if (refusal.empty()) try {
      return allocate_virtual(device, bytes);
    } catch (const Error& e) {
      refusal = e.what();
    }
  log_info(Topic::alloc, "{} bytes are allocated by cudaMalloc: {}", bytes, refusal);
  void* p = nullptr;
  const LeavesCapturesAlone relaxed;
  check(cudaMalloc(&p, bytes), "allocating {} bytes on {}", bytes, describe_device(device));
  return p;
}

void release_gpu_memory(void* p) {
  const LeavesCapturesAlone relaxed;
  if (VirtualAllocation mine = take_virtual(p); mine.memory) {
    const DeviceGuard guard(mine.device);
    check(cudaDeviceSynchronize(), "waiting for {} before GPU memory at {} is freed", describe_device(mine.device), p);
    return;
  }
  check(cudaFree(p), "freeing GPU memory at {}", p);
}

}  // namespace muster::cuda
