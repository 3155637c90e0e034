// Buffers of one size that buckets pass through, each with the lane of the calls that are filling or emptying
// it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "parallel/training_device.h"

namespace muster {

struct PassingBuffer {
  PassingBuffer(TrainingDevice& device, size_t bytes)
      : data(device.allocate(bytes)), lane(device.make_lane()) {}
  StateMemory data;
  std::unique_ptr<CommunicationLane> lane;  // ends first: nothing is written to data any more
};

// Any thread.
class PassingBuffers {
 public:
  PassingBuffers(TrainingDevice& device, size_t bytes) : device_(device), bytes_(bytes) {}

  std::unique_ptr<PassingBuffer> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      auto made = std::make_unique<PassingBuffer>(device_, bytes_);
      ++made_;
      return made;
    }
    std::unique_ptr<PassingBuffer> taken = std::move(free_.back());
    free_.pop_back();
    return taken;
  }
  void give_back(std::unique_ptr<PassingBuffer> buffer) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(buffer));
  }
  size_t allocated() const {
    const std::lock_guard lock(mutex_);
    return made_ * bytes_;
  }

 private:
  TrainingDevice& device_;
  const size_t bytes_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<PassingBuffer>> free_;
  size_t made_ = 0;
};

}  // namespace muster
