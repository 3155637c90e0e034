#include "nccl/comm_handle.h"

#include <algorithm>
#include <utility>

#include "comm/gpu_calls.h"
#include "comm/state.h"

namespace muster::nccl {

HandleTable<CommHandle, kMostComms> g_comms;
HandleTable<Registration, kMostRegistrations> g_registrations;
HandleTable<WindowHandle, kMostRegistrations> g_windows;

namespace {

// Closed while a thread was in one of their calls.
std::mutex g_lingering_mutex;
std::vector<CommHandle*>& g_lingering = *new std::vector<CommHandle*>;  // threads outlive static objects

template <class T>
void close_all(HandleTable<T, kMostRegistrations>& table, std::vector<T*>& open) {
  for (T* t : open) {
    table.retire(*t);
    table.recycle(*t);
  }
  open.clear();
}

bool is_busy(const CommHandle& comm) {
  return comm.communicator.impl()->running.load(std::memory_order_acquire);
}

}  // namespace

std::string CommHandle::last_error() const {
  std::lock_guard lock(mutex_);
  return last_error_;
}

void CommHandle::set_last_error(const std::string& text) {
  std::lock_guard lock(mutex_);
  last_error_ = text;
}

void CommHandle::clear() {
  communicator = {};
  ops.clear();
  close_all(g_registrations, registrations);
  close_all(g_windows, windows);
  device = 0;
  blocking = true;
  set_last_error({});
}

void reject_comm(const void* handle, const char* argument) {
  if (!handle) fail(Result::invalid_argument, "{} is NULL; pass a communicator", argument);
  if (g_comms.is_stale(handle))
    fail(Result::invalid_argument, "{} {} was destroyed or aborted before", argument, handle);
  fail(Result::invalid_argument, "{} {} is no communicator of this library", argument, handle);
}

CommHandle& require_made(const void* handle) {
  CommHandle& comm = require_comm(handle);
  if (comm.communicator.async_error() == Result::in_progress && !comm.communicator.impl()->made())
    fail(Result::invalid_argument,
         "the communicator is still being made. End its group, or poll ncclCommGetAsyncError until that no "
         "longer gives ncclInProgress");
  return comm;
}

ncclComm_t open_comm(Communicator communicator, std::optional<int> device) {
  if (!communicator) return nullptr;
  CommHandle& comm = g_comms.open("communicators");
  comm.blocking = communicator.blocking();
  comm.communicator = std::move(communicator);
  const GpuLibrary* const gpus = gpu_library();
  comm.device = device.value_or(gpus ? gpus->current() : 0);
  if (gpus) comm.communicator.impl()->gpu_device = undecided_gpu(comm.device);
  return to_handle(comm);
}

void close_comm(CommHandle& comm) {
  if (!g_comms.retire(comm)) return;
  LastingMemory::of_process().end_all_of(comm.communicator.impl().get());  // now, though a thread may keep the handle for a while
  std::vector<CommHandle*> idle;
  {
    std::lock_guard lock(g_lingering_mutex);
    g_lingering.push_back(&comm);
    const auto busy = std::partition(g_lingering.begin(), g_lingering.end(),
                                     [](const CommHandle* c) { return is_busy(*c); });
    idle.assign(busy, g_lingering.end());
    g_lingering.erase(busy, g_lingering.end());
  }
  for (CommHandle* c : idle) g_comms.recycle(*c);
}

}  // namespace muster::nccl
