// The tables in which a communicator's ranks meet around copies (exec/cuda/copies.h): where they lie, and how
// ranks come to reach them.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "comm/cuda/mailbox_memory.h"
#include "comm/gpu_rank.h"
#include "exec/cuda/copies.h"

namespace muster::cuda {

// In host memory that GPUs reach: so the host, too, sees who waits for whom, and ends it.
class MeetingTables {
 public:
  MeetingTables(const GpuSetting& setting, int device, Household& household)
      : setting_(setting), device_(device), household_(household) {}
  // This rank's, for the others. Throws where this GPU can't, or the host has no memory for it.
  std::string mine();
  // By rank; once. Throws where a peer's isn't reached.
  void hear(std::span<const std::string> tables);
  // Null before; any thread.
  CopyExecutor* executor() const { return seen_.load(std::memory_order_acquire); }

 private:
  const GpuSetting& setting_;
  const int device_;
  Household& household_;
  Reached own_;
  std::byte* own_on_host_ = nullptr;
  uint64_t offset_ = 0;  // of its own, in its process's Arena
  std::unique_ptr<CopyExecutor> executor_;
  std::atomic<CopyExecutor*> seen_{nullptr};
};

}  // namespace muster::cuda
