// Memory: allocating it, and registering it for this rank's own use.
#include "base/error.h"
#include "comm/gpu_rank.h"
#include "comm/state.h"
#include "nccl/entries.h"
#include "nccl/last_error.h"
#include "nccl/registration.h"

namespace muster::nccl {
namespace {

// Every byte of the range can be addressed.
void require_range(const void* buffer, size_t bytes) {
  require_pointer(buffer, "buff");
  if (bytes == 0) fail(Result::invalid_argument, "size is 0; a range of one byte or more can be registered");
  if (reinterpret_cast<uintptr_t>(buffer) + bytes < reinterpret_cast<uintptr_t>(buffer))
    fail(Result::invalid_argument, "{} bytes from {} on reach beyond the end of the address space", bytes,
         buffer);
}

}  // namespace

ncclResult_t MemAlloc(void** pointer, size_t bytes) {
  return query([&] {
    require_pointer(pointer, "ptr");
    *pointer = nullptr;
    const GpuLibrary* const gpus = gpu_library();
    *pointer = gpus ? gpus->allocate(bytes) : mem_alloc(bytes);
  });
}

ncclResult_t MemFree(void* pointer) {
  return query([&] {
    if (const GpuLibrary* gpus = gpu_library(); gpus && gpus->holds(pointer)) return gpus->release(pointer);
    mem_free(pointer);
  });
}

ncclResult_t CommRegister(ncclComm_t comm, void* buffer, size_t bytes, void** handle) {
  return query([&] {
    CommHandle& c = require_made(comm);
    require_pointer(handle, "handle");
    require_range(buffer, bytes);
    c.registrations.push_back(&g_registrations.open("registered ranges"));
    const Communicator::Impl* const impl = c.communicator.impl().get();
    if (impl->options.flag("NCCL_LOCAL_REGISTER"))
      c.registrations.back()->life = LastingMemory::of_process().add({static_cast<const std::byte*>(buffer), bytes}, false, impl);
    *handle = c.registrations.back();
  });
}

ncclResult_t CommDeregister(ncclComm_t comm, void* handle) {
  return query([&] {
    CommHandle& c = require_comm(comm);
    close(c.registrations, g_registrations, handle, "registered range", c.communicator.name());
  });
}

}  // namespace muster::nccl
