// How a rank leaves a communicator, and the network: what it sent comes before it is gone.
#include <sched.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "transports/wired_network.h"

namespace muster {

void WiredNetwork::drain(uint64_t communicator) noexcept {
  std::vector<WireEnd*> ends;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, e] : ends_)
      if (std::get<0>(key) == communicator && e->way_ == WireEnd::Way::out && e->come_ < e->sent_ && can_hear(std::get<1>(key))) {
        ends.push_back(e.get());
        e->flush_.header = header_to(std::get<1>(key), WireKind::flush, e->name_);
        e->flush_.header.number = e->sent_;
        e->flush_.peer = std::get<1>(key);
        e->flush_.end = e.get();
        post_op(e->flush_);
      }
  }
  const auto patience = setup_.options.seconds("MUSTER_LINK_TIMEOUT");
  auto until = WireClock::now() + patience;
  while (!ends.empty()) {
    {
      const std::lock_guard lock(mutex_);
      try {
        if (poll()) until = WireClock::now() + patience;
      } catch (const std::exception& e) {
        log_warn("{}: {}", name(), e.what());
        return;
      }
      std::erase_if(ends, [&](const WireEnd* e) { return e->come_ >= e->sent_ || !can_hear(e->name_.peer); });
      if (!ends.empty() && WireClock::now() >= until) {
        log_warn("{}: {} leaves though {} hasn't taken what it was sent: nothing has moved for {:.0f} s (MUSTER_LINK_TIMEOUT)", name(),
                 setup_.rank_name(setup_.rank), setup_.rank_name(ends[0]->name_.peer), std::chrono::duration<double>(patience).count());
        return;
      }
    }
    if (!ends.empty()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void WiredNetwork::answer_flush(const WireHeader& flush) {
  std::erase_if(flush_answers_, [](const WireOp& op) { return !op.posted; });
  WireOp& op = flush_answers_.emplace_back();
  op.peer = static_cast<int>(flush.from);
  op.header = header_to(op.peer, WireKind::flushed, {flush.communicator, op.peer, flush.lane, flush.slot_bytes});
  op.header.number = flush.number;
  post_op(op);
}

void WiredNetwork::say_goodbye() noexcept {
  for (const int p : acquainted_) {
    if (gone_.contains(p) || left_.contains(p)) continue;
    WireOp& op = goodbyes_[p];
    op.peer = p;
    op.header = header_to(p, WireKind::goodbye, {});
    post_op(op);
  }
  const auto pending = [&] {
    for (const auto& [p, op] : goodbyes_)
      if (!gone_.contains(p)) return true;
    for (const auto& [p, op] : farewells_)
      if (op.posted && !gone_.contains(p)) return true;
    return false;
  };
  const auto until = WireClock::now() + kWirePatience;
  while (pending() && WireClock::now() < until) {
    try {
      if (!poll()) sched_yield();
    } catch (const std::exception& e) {
      log_warn("{}: {}", name(), e.what());
      return;
    }
  }
}

}  // namespace muster
