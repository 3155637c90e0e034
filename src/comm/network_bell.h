// The process's helper thread looks after a network when the rank's own threads don't: it wakes them when something comes
// while they sleep (on what ranks of their own host ring, too), and moves what comes while they make no calls, so that
// peers aren't held up.
#pragma once

#include <functional>

#include "bootstrap/event_loop.h"
#include "exec/host/waiter.h"
#include "transports/network.h"

namespace muster {

class NetworkBell final : public Waiter::Alarm {
 public:
  // Both on the helper thread; they must not block, nor destroy this. `take_in`: what is to be done with what has come;
  // true if anything had.
  NetworkBell(Network& network, std::function<void()> ring, std::function<bool()> take_in);
  ~NetworkBell() override;
  NetworkBell(const NetworkBell&) = delete;
  NetworkBell& operator=(const NetworkBell&) = delete;

  bool arm() override;  // any thread

 private:
  void look();

  Network& network_;
  const std::function<void()> ring_;
  const std::function<bool()> take_in_;
  EventLoop& loop_;
  // Helper thread only.
  EventLoop::Handle watch_ = 0, timer_ = 0;
  uint64_t looks_ = 0;  // of the rank's threads, when it was last asked
};

}  // namespace muster
