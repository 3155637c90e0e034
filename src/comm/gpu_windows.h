// Windows that are memory of GPUs: where each rank's part is reached, and what is against copying there by
// copy engines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace muster {

struct GpuWindow {
  std::byte* base = nullptr;  // this rank's part
  uint64_t least = 0;         // bytes that every rank's part has
  uint32_t number = 0;        // among the communicator's, the same on all ranks
  std::vector<std::shared_ptr<std::byte>> parts;  // by rank, in addresses of this process; null: not reached
  // Why calls can't have their data copied to it; the same on all ranks; empty: they can.
  std::string obstacle;
};

// A place in a window; null: in none.
struct GpuWindowPlace {
  std::shared_ptr<const GpuWindow> window;
  uint64_t offset = 0;
};

// Those of a communicator. Windows end on any thread.
class GpuWindows {
 public:
  // Gives it its number. It is known as long as somebody has it.
  void add(const std::shared_ptr<GpuWindow>& window);
  // That which holds all of these bytes on every rank; one that can be copied to, if there is one.
  GpuWindowPlace find(const void* p, uint64_t bytes) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<GpuWindow>> all_;
  uint32_t made_ = 0;
};

}  // namespace muster
