// Memory: allocating it, and telling communicators of it.
#include <algorithm>

#include "base/error.h"
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

template <class T>
void close(CommHandle& comm, std::vector<T*>& open, HandleTable<T, kMostRegistrations>& table,
           const void* handle, const char* what) {
  T* found = table.find(handle);
  const auto it = std::find(open.begin(), open.end(), found);
  if (!found || it == open.end())
    fail(Result::invalid_argument, "{} is no {} of communicator {}{}", handle, what, comm.communicator.name(),
         table.is_stale(handle) ? ", or not any more" : "");
  open.erase(it);
  table.retire(*found);
  table.recycle(*found);
}

}  // namespace

ncclResult_t MemAlloc(void** pointer, size_t bytes) {
  return query([&] {
    require_pointer(pointer, "ptr");
    *pointer = nullptr;
    *pointer = mem_alloc(bytes);
  });
}

ncclResult_t MemFree(void* pointer) {
  return query([&] { mem_free(pointer); });
}

ncclResult_t CommRegister(ncclComm_t comm, void* buffer, size_t bytes, void** handle) {
  return query([&] {
    CommHandle& c = require_made(comm);
    require_pointer(handle, "handle");
    require_range(buffer, bytes);
    c.registrations.push_back(&g_registrations.open("registered ranges"));
    c.registrations.back()->range = {static_cast<std::byte*>(buffer), bytes};
    *handle = c.registrations.back();
  });
}

ncclResult_t CommDeregister(ncclComm_t comm, void* handle) {
  return query([&] {
    CommHandle& c = require_comm(comm);
    close(c, c.registrations, g_registrations, handle, "registered range");
  });
}

ncclResult_t CommWindowRegister(ncclComm_t comm, void* buffer, size_t bytes, ncclWindow_t* window,
                                int flags) {
  return call_on(comm, [&](CommHandle& c) {
    require_made(comm);
    require_pointer(window, "win");
    *window = nullptr;
    constexpr int kFlags =
        NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING | NCCL_WIN_GIN_ONLY | NCCL_WIN_CFT_COUNTED;
    if (flags & ~kFlags)
      fail(Result::invalid_argument, "winFlags {:#x}: NCCL_WIN_ flags are {:#x}", flags, kFlags);
    require_range(buffer, bytes);
    if (reinterpret_cast<uintptr_t>(buffer) % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
      fail(Result::invalid_argument,
           "buff {} is not a multiple of NCCL_WIN_REQUIRED_ALIGNMENT ({}). ncclMemAlloc gives memory that is",
           buffer, NCCL_WIN_REQUIRED_ALIGNMENT);
    c.windows.push_back(&g_windows.open("windows"));
    c.windows.back()->range = {static_cast<std::byte*>(buffer), bytes};
    *window = reinterpret_cast<ncclWindow_t>(c.windows.back());
  });
}

ncclResult_t CommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return call_on(comm, [&](CommHandle& c) { close(c, c.windows, g_windows, window, "window"); });
}

ncclResult_t WinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void** pointer) {
  return query([&] {
    const CommHandle& c = require_comm(comm);
    require_pointer(pointer, "outUserPtr");
    Window* found = g_windows.find(window);
    if (!found || std::find(c.windows.begin(), c.windows.end(), found) == c.windows.end())
      fail(Result::invalid_argument, "{} is no window of communicator {}", static_cast<void*>(window),
           c.communicator.name());
    *pointer = found->range.data();
  });
}

}  // namespace muster::nccl
