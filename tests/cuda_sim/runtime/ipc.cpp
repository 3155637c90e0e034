// Handles of memory and of events for other processes, which reach the file behind them through /proc.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "runtime.h"

namespace cuda_sim {
namespace {

constexpr uint32_t kMemoryMagic = 0x4D654970, kEventMagic = 0x45764970;

struct MemoryHandle {
  uint32_t magic;
  int pid, fd, device_id;
  uint64_t offset, size;
};
static_assert(sizeof(MemoryHandle) <= sizeof(cudaIpcMemHandle_t));

struct EventHandle {
  uint32_t magic;
  int pid, fd;
};
static_assert(sizeof(EventHandle) <= sizeof(cudaIpcEventHandle_t));

template <class From, class To>
To as_handle(const From& from) {
  To to;
  memset(&to, 0, sizeof to);
  memcpy(&to, &from, std::min(sizeof to, sizeof from));
  return to;
}

}  // namespace

int open_fd_of(int pid, int fd) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
  return open(path, O_RDWR | O_CLOEXEC);
}

int index_of(int device_id) {
  for (int i = 0; i < device_count(); i++)
    if (devices()[static_cast<size_t>(i)]->id == device_id) return i;
  return current_device;  // this process doesn't see the device
}

CUDA_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* address) {
  CUDA_SIM_ENTER();
  Allocation a;
  if (!handle || !find_allocation(address, &a) || a.kind != MemoryKind::kDevice)
    return set_error(cudaErrorInvalidValue);
  const Device& d = device(a.device);
  auto offset = static_cast<uint64_t>(reinterpret_cast<char*>(a.base) - d.arena);
  *handle = as_handle<MemoryHandle, cudaIpcMemHandle_t>({kMemoryMagic, getpid(), d.fd, d.id, offset, a.size});
  return cudaSuccess;
}
CUDA_API cudaError_t cudaIpcOpenMemHandle(void** address, cudaIpcMemHandle_t handle, unsigned flags) {
  CUDA_SIM_ENTER();
  CUDA_SIM_NOT_IN_CAPTURE();
  auto h = as_handle<cudaIpcMemHandle_t, MemoryHandle>(handle);
  if (!address || h.magic != kMemoryMagic || flags != cudaIpcMemLazyEnablePeerAccess)
    return set_error(cudaErrorInvalidValue);
  if (h.pid == getpid())
    return set_error(cudaErrorDeviceUninitialized);  // as CUDA refuses handles of the process itself
  int fd = open_fd_of(h.pid, h.fd);
  if (fd < 0) return set_error(cudaErrorMapBufferObjectFailed);
  size_t bytes = round_up(h.size, 4096);
  char* at = reserve_window(bytes, 65536);
  void* memory = mmap(mapped(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd,
                      static_cast<off_t>(h.offset));
  close(fd);
  if (memory == MAP_FAILED) return set_error(cudaErrorMapBufferObjectFailed);
  *address = at ? at : memory;
  add_allocation(*address, h.size, MemoryKind::kIpc, index_of(h.device_id));
  return cudaSuccess;
}
CUDA_API cudaError_t cudaIpcCloseMemHandle(void* address) {
  CUDA_SIM_ENTER();
  Allocation a;
  if (!find_allocation(address, &a) || a.base != reinterpret_cast<uintptr_t>(address) ||
      a.kind != MemoryKind::kIpc)
    return set_error(cudaErrorInvalidValue);
  wait_for_device(current_device);
  remove_allocation(address);
  size_t bytes = round_up(a.size, 4096);
  if (csim_window_size)
    mmap(mapped(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  else
    munmap(address, bytes);
  return cudaSuccess;
}

static IpcEventPage* map_event_page(int fd) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return page == MAP_FAILED ? nullptr : static_cast<IpcEventPage*>(page);
}

cudaError_t make_event_page(Event* e) {
  e->page_fd = memfd_create("cuda_sim-event", MFD_CLOEXEC);
  if (e->page_fd < 0 || ftruncate(e->page_fd, 4096)) return cudaErrorMemoryAllocation;
  e->page = map_event_page(e->page_fd);
  return e->page ? cudaSuccess : cudaErrorMemoryAllocation;
}

CUDA_API cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  CUDA_SIM_ENTER();
  auto* e = reinterpret_cast<Event*>(event);
  if (!e || !e->page) return set_error(cudaErrorInvalidResourceHandle);
  *handle = as_handle<EventHandle, cudaIpcEventHandle_t>({kEventMagic, getpid(), e->page_fd});
  return cudaSuccess;
}
CUDA_API cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  CUDA_SIM_ENTER();
  auto h = as_handle<cudaIpcEventHandle_t, EventHandle>(handle);
  if (h.magic != kEventMagic) return set_error(cudaErrorInvalidValue);
  int fd = open_fd_of(h.pid, h.fd);
  IpcEventPage* page = fd < 0 ? nullptr : map_event_page(fd);
  if (!page) return set_error(cudaErrorMapBufferObjectFailed);
  auto* e = new Event;
  e->device = current_device;
  e->flags = cudaEventInterprocess | cudaEventDisableTiming;
  e->page_fd = fd;
  e->page = page;
  *event = reinterpret_cast<cudaEvent_t>(e);
  return cudaSuccess;
}

}  // namespace cuda_sim
