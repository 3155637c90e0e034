#include "comm/cuda/network_bridge.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "transports/network.h"

namespace muster::cuda {
namespace {

// How long it polls after something has moved: a kernel's next message or a peer's answer is seldom later.
constexpr std::chrono::microseconds kPolls{200};
// Then it looks now and then, and more seldom while only a graph could have started kernels.
constexpr std::chrono::microseconds kNap{50}, kLongNap{1000};

}  // namespace

NetworkBridge::NetworkBridge(const GpuSetting& setting, int device, const MailboxShape& shape,
                             std::function<bool()> kernels_run)
    : setting_(setting),
      device_(device),
      shape_(shape),
      kernels_run_(std::move(kernels_run)),
      opened_(end_count(shape)) {}

std::optional<KernelEnd> NetworkBridge::open(uint32_t end) {
  if (opened_[end]) return std::nullopt;
  const EndPlace place = place_of(shape_, end);
  if (setting_.peers[static_cast<size_t>(place.peer)].shares_memory) return std::nullopt;
  const GpuNetwork& far = setting_.network;
  const WireName name{setting_.communicator, far.ranks[static_cast<size_t>(place.peer)],
                      far.first_lane + place.lane, shape_.slot_bytes};
  const bool from_gpu = place.sends && far.sends_from_gpu;
  FarBox box(device_, shape_, from_gpu ? FarBox::Slots::on_gpu : FarBox::Slots::pinned);
  const KernelEnd seen = box.end(place.peer, place.sends);
  std::shared_ptr<void> shown = from_gpu ? far.network->show_gpu_memory(box.gpu_slots()) : nullptr;
  {
    const std::lock_guard lock(ends_mutex_);
    if (place.sends)
      senders_.emplace_back(std::move(box), far.network->sender(name, nullptr), std::move(shown));
    else
      receivers_.emplace_back(std::move(box), far.network->receiver(name, nullptr));
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  opened_[end] = true;
  return seen;
}

void NetworkBridge::wake(bool captured) {
  {
    const std::lock_guard lock(mutex_);
    called_ = true;
    replayed_ |= captured;
  }
  woken_.notify_one();
}

void NetworkBridge::finish() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  woken_.notify_one();
  thread_.join();
  // What it hasn't taken it may still read.
  if (!all_sent()) setting_.network.network->settle(setting_.communicator);
}

void NetworkBridge::run() noexcept {
  auto moved_at = Clock::now();
  for (;;) {
    const bool moved = move() | setting_.network.progress();
    const auto now = Clock::now();
    if (moved) moved_at = now;
    const auto quiet = now - moved_at;
    std::unique_lock lock(mutex_);
    if (std::exchange(called_, false)) moved_at = now;
    if (ending_) {
      if (broken_ || setting_.network.failed() || all_sent()) return;
      if (quiet > setting_.network.patience) {
        log_warn(
            "communicator {}: rank {} leaves though other hosts haven't taken what its GPU sent: nothing "
            "has moved for {:.0f} s (MUSTER_LINK_TIMEOUT)",
            setting_.name, setting_.rank, std::chrono::duration<double>(quiet).count());
        return;
      }
    }
    lock.unlock();
    if (!moved) rest(quiet);
  }
}

bool NetworkBridge::move() {
  const std::lock_guard lock(ends_mutex_);
  if (broken_) return false;
  bool moved = false;
  try {
    for (FarSender& s : senders_) moved |= s.move();
    for (FarReceiver& r : receivers_) moved |= r.move();
  } catch (const Error& e) {
    broken_ = true;
    setting_.network.fail(e);
  }
  return moved;
}

bool NetworkBridge::all_sent() const {
  const std::lock_guard lock(ends_mutex_);
  return std::ranges::all_of(senders_, [](const FarSender& s) { return s.done(); });
}

// Nothing is under way, nor can be before the next launch.
bool NetworkBridge::is_idle() const {
  if (replayed_ || !all_sent()) return false;
  try {
    return !kernels_run_();
  } catch (const Error&) {  // a broken context: no kernel runs there any more
    return true;
  }
}

void NetworkBridge::rest(Clock::duration quiet) {
  if (quiet < kPolls) {
    sched_yield();
    return;
  }
  std::unique_lock lock(mutex_);
  const auto called = [&] { return called_ || ending_; };
  if (is_idle())
    woken_.wait(lock, called);
  else if (ending_)
    woken_.wait_for(lock, kNap);
  else
    woken_.wait_for(lock, replayed_ && quiet > kLongNap ? kLongNap : kNap, called);
}

}  // namespace muster::cuda
