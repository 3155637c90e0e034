// Looks after kernels that wait on GPUs, for no thread of the program does: on the process's helper thread,
// some times a second.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/state.h"

namespace muster {

// Any thread.
class GpuWatch {
 public:
  static GpuWatch& of_process();
  // A communicator that has a GpuRank, until it is removed. What kernels meet becomes its error, and its
  // error, also one that another rank has made, ends them.
  // So do waits for a rank that has left, or made another call, and those that are over by MUSTER_TIMEOUT; long ones are warned of.
  void add(Communicator::Impl& comm);
  void remove(const Communicator::Impl& comm) noexcept;

 private:
  struct Watched {
    Communicator::Impl* comm;
    std::optional<GpuWait> wait;  // seen in the last look
    std::chrono::steady_clock::time_point since{};
    int absent = -1;
    std::chrono::nanoseconds next_warning{0};
  };
  GpuWatch() = default;
  void look();
  static void look_at_wait(Watched& w);

  std::mutex mutex_;
  std::vector<Watched> watched_;
  bool looking_ = false;  // the timer is set
};

}  // namespace muster
