#include "nccl/last_error.h"

#include <mutex>
#include <new>

#include "base/log.h"
#include "nccl/entries.h"
#include "nccl/group.h"

namespace muster::nccl {
namespace {

thread_local std::string t_last_error;

std::mutex g_mutex;
std::string& g_last_error = *new std::string;  // threads in the background may outlive static objects

struct Failure {
  ncclResult_t code;
  std::string text;
};

Failure current_failure() {
  try {
    throw;
  } catch (const Error& e) {
    return {static_cast<ncclResult_t>(e.code()), e.what()};
  } catch (const std::bad_alloc&) {
    return {ncclSystemError, "no memory left"};
  } catch (const std::exception& e) {
    return {ncclInternalError, e.what()};
  } catch (...) {
    return {ncclInternalError, "an exception of unknown type"};
  }
}

}  // namespace

ncclResult_t fail_with_current_exception(Concerns concerns, CommHandle* comm) noexcept {
  ncclResult_t code = ncclSystemError;
  try {
    const Failure f = current_failure();
    code = f.code;
    log_warn("{}", f.text);
    t_last_error = f.text;
    if (comm) comm->set_last_error(f.text);
    std::lock_guard lock(g_mutex);
    g_last_error = f.text;
  } catch (const std::exception&) {
    // No memory for the text; the code is what matters.
  }
  if (concerns == Concerns::group) fail_group(code);
  return code;
}

ncclResult_t progress_of(CommHandle& comm) noexcept {
  try {
    if (note_nonblocking(comm)) return ncclSuccess;
    return comm.communicator.async_error() == Result::in_progress ? ncclInProgress : ncclSuccess;
  } catch (...) {
    return fail_with_current_exception(Concerns::group, &comm);
  }
}

namespace {

// This thread's or, if it has none, the process's.
std::string last_error() {
  if (!t_last_error.empty()) return t_last_error;
  std::lock_guard lock(g_mutex);
  return g_last_error;
}

}  // namespace

const char* GetLastError(ncclComm_t handle) {
  thread_local std::string text;  // what was returned stays until the next call
  try {
    if (!handle) {
      text = last_error();
    } else if (CommHandle* comm = g_comms.find(handle)) {
      std::string failure;
      const Result state = comm->communicator.async_error(&failure);
      text = state != Result::success && state != Result::in_progress ? failure : comm->last_error();
    } else {
      reject_comm(handle, "comm");
    }
  } catch (const std::exception& e) {
    try {
      text = e.what();
    } catch (const std::bad_alloc&) {
      return "no memory left";
    }
  }
  return text.c_str();
}

}  // namespace muster::nccl
