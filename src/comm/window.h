// The inside of a Window: where each rank's range is.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "comm/gpu_windows.h"
#include "muster/muster.h"

namespace muster {

struct Window::Impl {
  struct Range {
    std::byte* base = nullptr;  // as mapped here; null: it can't be reached
    size_t bytes = 0;
  };

  std::shared_ptr<Communicator::Impl> comm;
  void* base = nullptr;  // this rank's, as given
  size_t bytes = 0;
  std::vector<Range> ranges;  // by rank, once it is registered
  uint32_t number = 0;        // of several hosts: as FarPuts has it
  uint64_t life = 0;          // in LastingMemory
  bool symmetric = false;     // see Communicator::register_window
  std::shared_ptr<const void> offer;   // by which other processes reach this rank's part on its GPU
  std::shared_ptr<GpuWindow> on_gpus;  // null: no rank's part is GPU memory
  std::atomic<bool> registered{false};

  ~Impl();
};

}  // namespace muster
