// The counters of signals: each rank's for each rank, in shared memory.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "muster/window.h"
#include "transports/shm/segment.h"

namespace muster {

static_assert(kSignals == static_cast<size_t>(kSignalContexts) * kSignalsPerContext);

// For the thread that runs calls.
class Signals {
 public:
  // Where `to` counts `from`'s, both by their places in the segment; `own`, this rank's, is one of them. Memory is
  // reserved at the first use: throws system_error when it can't be had. `segment`: null for a communicator of one rank.
  std::atomic<uint64_t>& counter(Segment* segment, int own, int from, int to, Signal s);
  // Memory of this rank's counters of what it has sent. Any thread.
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::vector<bool> reserved_;  // by page
  std::unique_ptr<std::atomic<uint64_t>[]> own_;
  std::atomic<size_t> bytes_{0};
};

}  // namespace muster
