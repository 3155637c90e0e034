#include "comm/network_bell.h"

#include <sys/epoll.h>

#include <chrono>

#include "bootstrap/service.h"

namespace muster {
namespace {

// A rank that hasn't looked for so long makes no calls, or sleeps.
constexpr std::chrono::milliseconds kIdle{10};
constexpr int kMostMoves = 64;  // at a time: the helper thread has others to serve

}  // namespace

// Only what is armed is watched: a rank that looks itself shouldn't have the helper thread wake for each of its messages.
NetworkBell::NetworkBell(Network& network, std::function<void()> ring, std::function<bool()> take_in)
    : network_(network), ring_(std::move(ring)), take_in_(std::move(take_in)), loop_(Service::get().loop()) {
  loop_.call([&] {
    watch_ = loop_.watch(network_.event_fd(), EPOLLONESHOT, [this] {
      ring_();
      if (!timer_) look();
    });
    look();
  });
}

NetworkBell::~NetworkBell() {
  loop_.call([&] {
    loop_.unwatch(watch_);
    loop_.cancel(timer_);
  });
}

// Again and again while the rank's threads look themselves; then it is the network that says when.
void NetworkBell::look() {
  timer_ = 0;
  const uint64_t looks = network_.looks();
  bool idle = looks == looks_;
  looks_ = looks;
  for (int i = 0; idle; ++i) {
    const bool moved = network_.tend();
    if (!take_in_() && !moved) break;
    if (i == kMostMoves) idle = false;
  }
  if (idle && network_.arm())
    loop_.change(watch_, EPOLLIN | EPOLLONESHOT);
  else
    timer_ = loop_.at(EventLoop::Clock::now() + kIdle, [this] { look(); });
}

bool NetworkBell::arm() {
  if (!network_.arm()) return false;
  loop_.post([&loop = loop_, watch = watch_] { loop.change(watch, EPOLLIN | EPOLLONESHOT); });
  return true;
}

}  // namespace muster
