// Windows, and the calls that write to them and wait for signals.
#include "base/error.h"
#include "comm/state.h"
#include "nccl/entries.h"
#include "nccl/last_error.h"
#include "nccl/stream_handle.h"

namespace muster::nccl {
namespace {

void require_flags(unsigned flags) {
  if (flags != 0) fail(Result::invalid_argument, "flags {:#x}: none are defined, pass 0", flags);
}

const Window& require_window(const CommHandle& c, ncclWindow_t window) {
  return require_open(c.windows, g_windows, window, "window", c.communicator.name()).window;
}

size_t bytes_of(size_t count, ncclDataType_t type) {
  const size_t element = size_of(static_cast<DataType>(type));
  if (element == 0)
    fail(Result::invalid_argument, "datatype {} is not an element type (0..{})", static_cast<int>(type),
         kDataTypes - 1);
  if (count > kAddressSpace / element)
    fail(Result::invalid_argument, "count {} times {} bytes is more than an address space holds", count,
         element);
  return count * element;
}

}  // namespace

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
    if (bytes) require_pointer(buffer, "buff");
    if (bytes && reinterpret_cast<uintptr_t>(buffer) % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
      fail(Result::invalid_argument,
           "buff {} is not a multiple of NCCL_WIN_REQUIRED_ALIGNMENT ({}). ncclMemAlloc gives memory that is",
           buffer, NCCL_WIN_REQUIRED_ALIGNMENT);
    Window made = c.communicator.register_window(buffer, bytes, (flags & NCCL_WIN_COLL_SYMMETRIC) != 0);
    c.windows.push_back(&g_windows.open("windows"));
    c.windows.back()->window = std::move(made);
    *window = reinterpret_cast<ncclWindow_t>(c.windows.back());
  });
}

ncclResult_t CommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return call_on(
      comm, [&](CommHandle& c) { close(c.windows, g_windows, window, "window", c.communicator.name()); });
}

ncclResult_t WinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void** pointer) {
  return query([&] {
    const CommHandle& c = require_comm(comm);
    require_pointer(pointer, "outUserPtr");
    *pointer = require_window(c, window).data();
  });
}

ncclResult_t PutSignal(const void* source, size_t count, ncclDataType_t type, int peer, ncclWindow_t window,
                       size_t offset, int signal, int context, unsigned flags, ncclComm_t comm,
                       cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    require_made(comm);
    require_flags(flags);
    c.communicator.put_signal(source, bytes_of(count, type), peer, require_window(c, window), offset,
                              {signal, context}, host_stream(stream));
  });
}

ncclResult_t Signal(int peer, int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    require_made(comm);
    require_flags(flags);
    c.communicator.signal(peer, {signal, context}, host_stream(stream));
  });
}

ncclResult_t WaitSignal(int count, ncclWaitSignalDesc_t* descriptors, ncclComm_t comm, cudaStream_t stream) {
  return call_on(comm, [&](CommHandle& c) {
    require_made(comm);
    if (count < 0) fail(Result::invalid_argument, "nDesc {} is negative", count);
    if (count) require_pointer(descriptors, "signalDescs");
    std::vector<SignalWait> waits;
    for (const ncclWaitSignalDesc_t& d : std::span(descriptors, static_cast<size_t>(count)))
      waits.push_back({d.peer, d.opCnt, {d.sigIdx, d.ctx}});
    c.communicator.wait_signal(waits, host_stream(stream));
  });
}

}  // namespace muster::nccl
