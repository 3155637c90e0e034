// Windows: memory that other ranks write to while its owner does something else, and the signals that tell
// the owner.
#pragma once

#include <cstddef>
#include <memory>

#include "muster/types.h"

namespace muster {

// A range of each rank's memory, made by Communicator::register_window. Copies stand for the same window,
// which this rank deregisters with the last one: that is local and waits for nobody, so the caller sees to it
// that no rank puts into the range any more. The range must stay allocated until then. A window also keeps
// its communicator's memory. Copying is as thread-safe as with shared_ptr; the queries may be called from any
// thread.
class MUSTER_API Window {
 public:
  Window() = default;

  explicit operator bool()
      const;            // false: empty, or not registered (yet: inside a group, or without blocking)
  void* data() const;   // this rank's range, as it was given; null for an empty window
  size_t size() const;  // its bytes
  size_t size(
      int rank) const;  // bytes of that rank's range; invalid_argument: no such rank, or not registered

  // Where that rank's range is mapped in this process; null: it isn't (another host, or memory that mem_alloc
  // didn't give). invalid_argument as for size.
  void* data(int rank) const;

  struct MUSTER_HIDDEN Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  friend class Communicator;
  std::shared_ptr<Impl> impl_;
};

// Names one of the counters that each rank has for each rank of its communicator, itself included. All begin
// at 0.
inline constexpr int kSignalContexts = 16;
inline constexpr int kSignalsPerContext = 256;
struct Signal {
  int index = 0;    // 0 .. kSignalsPerContext - 1
  int context = 0;  // 0 .. kSignalContexts - 1
};

// `count` signals that `peer` has sent or will send. 0: none is waited for.
struct SignalWait {
  int peer = 0;
  int count = 1;
  Signal signal = {};
};

}  // namespace muster
