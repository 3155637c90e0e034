// What an ncclComm_t stands for.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "muster/muster.h"
#include "nccl.h"
#include "nccl/handle_table.h"
#include "nccl/registration.h"

namespace muster::nccl {

// An operation of ncclRedOpCreatePreMulSum.
struct CustomOp {
  int number;
  ReduceOp op;                // complete, unless ...
  const void* device_scalar;  // ... not null: where the scalar is when a call runs
};

struct CommHandle {
  Communicator communicator;
  bool blocking = true;
  int device = 0;
  std::vector<CustomOp> ops;
  std::vector<Registration*> registrations;
  std::vector<WindowHandle*> windows;

  std::string last_error() const;
  void set_last_error(const std::string& text);
  void clear();

 private:
  mutable std::mutex mutex_;
  std::string last_error_;
};

inline constexpr size_t kMostComms = 1 << 16;
extern HandleTable<CommHandle, kMostComms> g_comms;

inline ncclComm_t to_handle(CommHandle& comm) { return reinterpret_cast<ncclComm_t>(&comm); }

// invalid_argument: NULL, destroyed, or no communicator. `argument`: its name, for the message.
[[noreturn]] void reject_comm(const void* handle, const char* argument);
inline CommHandle& require_comm(const void* handle, const char* argument = "comm") {
  CommHandle* comm = g_comms.find(handle);
  if (!comm) [[unlikely]]
    reject_comm(handle, argument);
  return *comm;
}
// And: it has been made. NCCL refuses to say anything of one that is still being made.
CommHandle& require_made(const void* handle);

// A handle for `communicator`, or NULL for an empty one (a rank without a color). device: as given to ncclCommInitAll; none: the
// calling thread's current GPU.
ncclComm_t open_comm(Communicator communicator, std::optional<int> device = {});
// Frees the handle, once no thread is inside one of its calls: an abort may come while another thread is.
void close_comm(CommHandle& comm);

}  // namespace muster::nccl
