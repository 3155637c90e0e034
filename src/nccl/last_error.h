// Where exceptions become codes, and their text what ncclGetLastError says.
#pragma once

#include <string>

#include "nccl.h"
#include "nccl/comm_handle.h"

namespace muster::nccl {

// Whether a failure concerns the group that the thread is in: that of a query doesn't.
enum class Concerns { call_only, group };

// Inside a catch block. Keeps the text for this thread and, unless null, for `comm`; returns the code.
ncclResult_t fail_with_current_exception(Concerns concerns, CommHandle* comm = nullptr) noexcept;

// ncclInProgress while `comm` is busy; in a group ncclSuccess, since its end tells.
ncclResult_t progress_of(CommHandle& comm) noexcept;

// f() with its exception as a code: what any thread may ask at any time.
template <class F>
inline ncclResult_t query(F&& f) noexcept {
  try {
    f();
    return ncclSuccess;
  } catch (...) {
    return fail_with_current_exception(Concerns::call_only);
  }
}

// The same for what a group may hold.
template <class F>
inline ncclResult_t call(F&& f) noexcept {
  try {
    f();
    return ncclSuccess;
  } catch (...) {
    return fail_with_current_exception(Concerns::group);
  }
}

// f(communicator) for a call on one. Non-blocking ones may say ncclInProgress.
template <class F>
inline ncclResult_t call_on(ncclComm_t handle, F&& f) noexcept {
  CommHandle* comm = nullptr;
  try {
    comm = &require_comm(handle);
    f(*comm);
    return comm->blocking ? ncclSuccess : progress_of(*comm);
  } catch (...) {
    return fail_with_current_exception(Concerns::group, comm);
  }
}

inline void require_pointer(const void* pointer, const char* argument) {
  if (!pointer) [[unlikely]]
    fail(Result::invalid_argument, "{} is NULL", argument);
}

}  // namespace muster::nccl
