// Where mailboxes (exec/cuda/mailbox.h) lie, and until when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/mappings.h"
#include "device/cuda/memory.h"

namespace muster::cuda {

// Memory in addresses that GPUs of this process reach, with what owns it.
using Reached = std::shared_ptr<std::byte>;

// What this process reaches, by address: ranks of one process share their mailboxes and what they have
// mapped.
Registry<std::byte>& reached();

// In GPU memory, by the driver's virtual memory management, or by cudaMalloc.
Reached make_gpu_mailbox(int device, size_t bytes, bool is_virtual);
// In this process's Arena, for GPUs that don't reach each other; `offset`: there.
Reached make_host_mailbox(int device, size_t bytes, uint64_t* offset);
// Memory of another process's Arena, from which `arena` is mapped.
Reached reach_host_mailbox(int device, const std::shared_ptr<std::byte>& arena, uint64_t offset,
                           size_t bytes);

// The ranks that a communicator has in this process. Their mailboxes stay until the last of them has gone, so
// that it alone waits for other processes, and none of them for another of its own.
class Household {
 public:
  static std::shared_ptr<Household> of(uint64_t communicator);
  void enter();
  void keep(Reached mailbox);
  // Of a rank that entered. What was kept, where it was the last.
  std::vector<Reached> leave();

 private:
  std::mutex mutex_;
  int ranks_ = 0;
  std::vector<Reached> kept_;
};

}  // namespace muster::cuda
