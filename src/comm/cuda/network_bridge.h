// By what GPUs of different hosts send each other messages: kernels write them into pinned host memory, or
// into the GPU's where the network reads that, and read them there (far_box.h), and a thread takes them from
// there to the network and back.
//
// It only looks at what kernels have posted and at what has come, so that calls which a graph replays need
// nobody to tell it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/cuda/far_end.h"
#include "comm/gpu_rank.h"
#include "exec/cuda/mailbox.h"

namespace muster::cuda {

// Of the thread that runs calls; its own thread is there from the first open() on.
class NetworkBridge {
 public:
  // `setting` outlives it. `kernels_run`: whether what was launched last may still run; for any thread.
  NetworkBridge(const GpuSetting& setting, int device, const MailboxShape& shape,
                std::function<bool()> kernels_run);
  ~NetworkBridge() { finish(); }
  NetworkBridge(const NetworkBridge&) = delete;
  NetworkBridge& operator=(const NetworkBridge&) = delete;

  // The end of that number, for kernels, the first time that it is asked for; none for those of this host.
  // Throws unhandled_device_error or system_error where memory is short, remote_error where the peer is lost.
  std::optional<KernelEnd> open(uint32_t end);
  // Something was launched; `captured`: and may be again, without a word.
  void wake(bool captured);
  // When kernels have ended: what they sent is the network's when it returns, unless the communicator has
  // failed or nothing has moved for the setting's patience. Its memory is nobody's then.
  void finish() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  void run() noexcept;
  bool move();
  bool all_sent() const;
  void rest(Clock::duration quiet);
  bool is_idle() const;

  const GpuSetting& setting_;
  const int device_;
  const MailboxShape shape_;
  const std::function<bool()> kernels_run_;
  std::vector<bool> opened_;  // by end
  std::thread thread_;

  mutable std::mutex ends_mutex_;  // held while they move
  std::list<FarSender> senders_;
  std::list<FarReceiver> receivers_;
  bool broken_ = false;  // of the thread

  std::mutex mutex_;  // for what follows; comes before the other one
  std::condition_variable woken_;
  bool called_ = false;    // by wake(), since the thread last looked
  bool replayed_ = false;  // a graph may start kernels at any time
  bool ending_ = false;
};

}  // namespace muster::cuda
