#include "nccl/last_error.h"

#include <mutex>
#include <new>
#include <unordered_map>

#include "base/log.h"
#include "nccl/entries.h"
#include "nccl/group.h"

namespace muster::nccl {
namespace {

thread_local std::string t_last_error;

std::mutex g_mutex;
std::string& g_last_error = *new std::string;  // threads in the background may outlive static objects

// Logs a failure, but of those that differ in numbers only the first ten: programs poll and try in loops.
void warn(const std::string& text) {
  constexpr int kMostAlike = 10;
  constexpr size_t kMostKinds = 1024;
  static std::unordered_map<std::string, int>& seen = *new std::unordered_map<std::string, int>;
  std::string kind = text;
  std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
  int times = 0;
  {
    const std::lock_guard lock(g_mutex);
    if (seen.size() >= kMostKinds) seen.clear();
    int& count = seen[kind];
    if (count == kMostAlike) return;
    times = ++count;
  }
  log_warn("{}{}", text, times == kMostAlike ? " (the tenth like this: further ones are not logged, ncclGetLastError has them)" : "");
}

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
    warn(f.text);
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
