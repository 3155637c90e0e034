#include "transports/wired_network.h"

#include <sched.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace muster {
namespace {

// Messages are counted in order, whatever order they are done in; fewer than 64 are under way.
void count_in_order(uint64_t number, uint64_t* done, uint64_t* early) {
  if (number != *done + 1) {
    if (number > *done && number - *done - 2 < 64) *early |= uint64_t{1} << (number - *done - 2);
    return;
  }
  for (++*done; *early & 1; *early >>= 1) ++*done;
  *early >>= 1;
}

}  // namespace

WiredNetwork::WiredNetwork(const NetworkSetup& setup)
    : setup_(setup), addresses_(static_cast<size_t>(setup.nranks)), secrets_(static_cast<size_t>(setup.nranks)) {}

WiredNetwork::~WiredNetwork() = default;

void WiredNetwork::meet(std::vector<std::string> addresses) {
  const std::lock_guard lock(mutex_);
  addresses_ = std::move(addresses);
  addresses_.resize(secrets_.size());
}

const WiredNetwork::Secrets& WiredNetwork::secrets(int peer) {
  auto& s = secrets_[static_cast<size_t>(peer)];
  if (!s) s = Secrets{setup_.secret(peer, setup_.rank), setup_.secret(setup_.rank, peer)};
  return *s;
}

// --- ends ---

WireEnd& WiredNetwork::end(WireEnd::Way way, const WireName& name) {
  auto& e = ends_[{name.communicator, name.peer, name.lane, way}];
  if (!e) {
    try {
      e = std::make_unique<WireEnd>(*this, way, name);
      e->registration = register_ring(e->ring());
    } catch (...) {
      ends_.erase({name.communicator, name.peer, name.lane, way});
      throw;
    }
  }
  if (e->name().slot_bytes != name.slot_bytes)
    fail(Result::internal_error, "{} sends messages of up to {} bytes in lane {} where this rank has {}", setup_.rank_name(name.peer),
         e->name().slot_bytes, name.lane, name.slot_bytes);
  return *e;
}

void WiredNetwork::require_reachable(const WireName& name) const {
  if (const auto f = failures_.find(name.peer); f != failures_.end()) throw Error(Result::remote_error, f->second);
  if (address_of(name.peer).empty())
    fail(Result::remote_error, "{} has no address in the network {}, by which {} would reach it", setup_.rank_name(name.peer), this->name(),
         setup_.rank_name(setup_.rank));
}

SlotSender& WiredNetwork::sender(const WireName& name, Doorbell* bell) {
  const std::lock_guard lock(mutex_);
  require_reachable(name);
  WireEnd& e = end(WireEnd::Way::out, name);
  e.bell_ = bell;
  return *e.sender_;
}

SlotReceiver& WiredNetwork::receiver(const WireName& name, Doorbell* bell) {
  const std::lock_guard lock(mutex_);
  require_reachable(name);
  WireEnd& e = end(WireEnd::Way::in, name);
  e.bell_ = bell;
  if (acquainted_.insert(name.peer).second) expect(name.peer);
  // Once, and only by a rank that will read it: messages go without until it is known.
  if (!e.ring_says_.end) {
    e.ring_says_.end = &e;
    if (const std::string text = describe_ring(e); !text.empty()) {
      e.ring_says_.peer = name.peer;
      e.ring_says_.header = header_to(name.peer, WireKind::ring, name);
      std::memcpy(e.ring_says_.header.inlined, text.data(), std::min(text.size(), kInlineBytes));
      post_op(e.ring_says_);
    }
  }
  return *e.receiver_;
}

size_t WiredNetwork::ends() const {
  const std::lock_guard lock(mutex_);
  return ends_.size() + closed_ends_.size();
}

bool WiredNetwork::busy(uint64_t communicator) const {
  for (const auto& [key, e] : ends_)
    if (std::get<0>(key) == communicator && e->under_way_ > 0) return true;
  return false;
}

void WiredNetwork::settle(uint64_t communicator) noexcept {
  const auto until = WireClock::now() + kWirePatience;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      try {
        if (busy(communicator)) poll();
      } catch (const std::exception& e) {
        log_warn("{}: {}", name(), e.what());
      }
      if (!busy(communicator)) return;
      if (WireClock::now() >= until) {
        std::set<int> peers;
        for (const auto& [key, e] : ends_)
          if (std::get<0>(key) == communicator && e->under_way_ > 0) peers.insert(std::get<1>(key));
        for (const int p : peers) {
          fail_peer(p, "it took nothing for a second after a call had failed, so the connection was given up");
          disconnect(p);
        }
        return;
      }
    }
    sched_yield();
  }
}

Network::Memory WiredNetwork::memory(uint64_t communicator) const {
  const std::lock_guard lock(mutex_);
  Memory all;
  for (const auto& [key, e] : ends_) {
    if (std::get<0>(key) != communicator) continue;
    const Memory m = e->memory();
    all.kept += m.kept;
    all.rings += m.rings;
    all.released += m.released;
  }
  return all;
}

// What the transport still holds, though it has come, it lets go of soon; what not stays.
void WiredNetwork::release(uint64_t communicator) noexcept {
  for (const auto until = WireClock::now() + kWirePatience;; sched_yield()) {
    const std::lock_guard lock(mutex_);
    try {
      if (busy(communicator)) poll();
    } catch (const std::exception& e) {
      log_warn("{}: {}", name(), e.what());
    }
    if (busy(communicator) && WireClock::now() < until) continue;
    for (const auto& [key, e] : ends_)
      if (std::get<0>(key) == communicator && e->under_way_ == 0) e->release();
    return;
  }
}

void WiredNetwork::reuse(uint64_t communicator) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, e] : ends_)
    if (std::get<0>(key) == communicator) e->reuse();
}

void WiredNetwork::close(uint64_t communicator) noexcept {
  const std::lock_guard lock(mutex_);
  closed_.insert(communicator);
  looked_behind_failure_.erase(communicator);
  for (auto it = ends_.begin(); it != ends_.end();) {
    if (std::get<0>(it->first) != communicator) {
      ++it;
      continue;
    }
    it->second->bell_ = nullptr;
    closed_ends_.push_back(std::move(it->second));
    it = ends_.erase(it);
  }
  sweep();
}

void WiredNetwork::sweep() noexcept {
  std::erase_if(closed_ends_, [](const auto& e) { return e->under_way_ == 0; });
}

void WiredNetwork::free_ends() noexcept {
  ends_.clear();
  closed_ends_.clear();
}

// --- progress ---

bool WiredNetwork::progress(uint64_t communicator) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;  // another thread of this rank is moving everything
  looks_.fetch_add(1, std::memory_order_relaxed);
  const bool moved = poll();
  if (!closed_ends_.empty()) [[unlikely]]
    sweep();
  if (!failures_.empty()) [[unlikely]] {
    // What came before is looked at first, in this look or another thread's.
    if (looked_behind_failure_.insert(communicator).second) return true;
    throw_failures(communicator);
  }
  return moved;
}

bool WiredNetwork::tend() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return true;
  try {
    const bool moved = poll();
    sweep();
    return moved;
  } catch (const std::exception& e) {
    log_warn("{}: {}", name(), e.what());
    return false;
  }
}

void WiredNetwork::throw_failures(uint64_t communicator) const {
  for (const auto& [key, e] : ends_)
    if (std::get<0>(key) == communicator)
      if (const auto f = failures_.find(std::get<1>(key)); f != failures_.end()) throw Error(Result::remote_error, f->second);
}

bool WiredNetwork::arm() {
  const std::lock_guard lock(mutex_);
  return arm_events();
}

void WiredNetwork::fail_peer(int peer, const std::string& why) {
  gone_.insert(peer);
  if (left_.contains(peer)) return;  // as it said
  const bool first = failures_
                         .emplace(peer, fmt::format("the {} connection between {} and {} is lost: {}", name(), setup_.rank_name(setup_.rank),
                                                    setup_.rank_name(peer), why))
                         .second;
  if (!first) return;
  looked_behind_failure_.clear();
  for (const auto& [key, e] : ends_)
    if (std::get<1>(key) == peer && e->bell_) e->bell_->ring();
}

// --- out ---

WireHeader WiredNetwork::header_to(int peer, WireKind kind, const WireName& name) {
  WireHeader h{};
  h.secret = secrets(peer).out;
  h.communicator = name.communicator;
  h.from = static_cast<uint32_t>(setup_.rank);
  h.lane = static_cast<uint16_t>(name.lane);
  h.kind = kind;
  h.slot_bytes = static_cast<uint32_t>(name.slot_bytes);
  return h;
}

void WiredNetwork::post_op(WireOp& op) {
  op.posted = true;
  if (op.end) ++op.end->under_way_;
  // progress() says so; or nobody waits for it.
  if (failures_.contains(op.peer) || (left_.contains(op.peer) && op.header.kind != WireKind::farewell)) return finished(op);
  acquainted_.insert(op.peer);
  try {
    post(op);
  } catch (const std::exception& e) {
    fail_peer(op.peer, e.what());
    if (op.posted) finished(op);
  }
}

void WiredNetwork::finished(WireOp& op) noexcept {
  op.posted = false;
  WireEnd* const e = op.end;
  if (!e) return;
  --e->under_way_;
  switch (op.header.kind) {
    case WireKind::message: {
      const uint64_t before = e->done_.load(std::memory_order_relaxed);
      uint64_t done = before;
      count_in_order(op.header.number, &done, &e->early_);
      if (done == before) return;
      e->done_.store(done, std::memory_order_release);
      if (e->bell_) e->bell_->ring();
      return;
    }
    case WireKind::credit:
      if (e->credit_waits_) {
        e->credit_waits_ = false;
        op.header.consumed = e->lines_.credit.consumed.load(std::memory_order_acquire);
        op.header.freed = e->lines_.credit.freed.load(std::memory_order_acquire);
        post_op(op);
        return;
      }
      e->done_.store(e->credits_, std::memory_order_release);
      if (e->bell_) e->bell_->ring();
      return;
    case WireKind::ring:
    case WireKind::flush:
    case WireKind::flushed:
    case WireKind::goodbye:
    case WireKind::farewell: return;
  }
}

// --- in ---

WireEnd* WiredNetwork::end_of(const WireHeader& h) {
  const bool to_receiver = h.kind == WireKind::message || h.kind == WireKind::flush;
  if (closed_.contains(h.communicator)) return nullptr;
  return &end(to_receiver ? WireEnd::Way::in : WireEnd::Way::out,
              {h.communicator, static_cast<int>(h.from), h.lane, h.slot_bytes});
}

void WiredNetwork::dropped_stranger() {
  if (strangers_++ == 0)
    log_warn("{}: what doesn't prove to be from a rank of this job was dropped. Somebody else sends to this process's ports", name());
}

WiredNetwork::Landing WiredNetwork::land(const WireHeader& h) {
  if (h.from >= secrets_.size() || h.secret != secrets(static_cast<int>(h.from)).in) {
    dropped_stranger();
    return {};
  }
  const int from = static_cast<int>(h.from);
  if (acquainted_.insert(from).second) expect(from);
  if (h.kind == WireKind::goodbye || h.kind == WireKind::farewell) return {true, nullptr, nullptr};
  WireEnd* e = nullptr;
  try {
    e = end_of(h);
  } catch (const std::exception& x) {
    fail_peer(from, x.what());
  }
  if (!e) {
    if (h.kind == WireKind::flush) answer_flush(h);  // the communicator is closed here: nobody waits for anything
    return {};
  }
  Landing l{true, nullptr, e};
  if (h.kind == WireKind::message && h.bytes > 0) {
    if (h.offset > e->ring_bytes_ || h.bytes > e->ring_bytes_ - h.offset) {
      fail_peer(from, fmt::format("it sent {} bytes for offset {} of a ring of {}", h.bytes, h.offset, e->ring_bytes_));
      return {};
    }
    l.at = e->ring_ + h.offset;
    e->uses(h.offset, h.bytes);
  }
  ++e->under_way_;
  return l;
}

void WiredNetwork::landed(const WireHeader& h, const Landing& l) {
  if (!l.known) return;
  const int from = static_cast<int>(h.from);
  if (h.kind == WireKind::farewell) {
    gone_.insert(from);
    return;
  }
  if (h.kind == WireKind::goodbye) {
    left_.insert(from);
    WireOp& op = farewells_[from];
    op.peer = from;
    op.header = header_to(from, WireKind::farewell, {});
    if (!op.posted) post_op(op);
    return;
  }
  WireEnd& e = *l.end;
  --e.under_way_;
  switch (h.kind) {
    case WireKind::message: {
      SlotLine& line = e.lines_.slots[(h.number - 1) % kSlots];
      line.fingerprint[0] = h.fingerprint;
      std::memcpy(line.payload, h.inlined, kInlineBytes);
      line.sequence[0].store(2 * h.number, std::memory_order_release);
      message_came(e, h.number);
      break;
    }
    case WireKind::credit: {
      // Either counter only grows, and credits may overtake each other.
      CreditLine& c = e.lines_.credit;
      if (h.freed > c.freed.load(std::memory_order_relaxed)) c.freed.store(h.freed, std::memory_order_release);
      if (h.consumed > c.consumed.load(std::memory_order_relaxed)) c.consumed.store(h.consumed, std::memory_order_release);
      break;
    }
    case WireKind::flush:
      e.flush_wanted_ = h.number;
      return message_came(e, 0);
    case WireKind::flushed:
      e.come_ = std::max(e.come_, h.number);
      return;
    case WireKind::ring:
      std::memcpy(e.peer_ring, h.inlined, kInlineBytes);
      e.knows_peer_ring = true;
      return;
    case WireKind::goodbye:
    case WireKind::farewell: return;
  }
  if (e.bell_) e.bell_->ring();
}

// `number`: which; 0: none, but a flush.
void WiredNetwork::message_came(WireEnd& e, uint64_t number) {
  if (number > 0) count_in_order(number, &e.come_, &e.early_);
  if (e.flush_wanted_ == 0 || e.come_ < e.flush_wanted_) [[likely]]
    return;
  WireHeader flush = header_to(e.name_.peer, WireKind::flush, e.name_);
  flush.from = static_cast<uint32_t>(e.name_.peer);
  flush.number = std::exchange(e.flush_wanted_, 0);
  answer_flush(flush);
}

void WiredNetwork::lost(const Landing& l) noexcept {
  if (l.end) --l.end->under_way_;
}

void WiredNetwork::arrived(const WireHeader& h, const void* payload, size_t bytes) {
  const Landing l = land(h);
  if (!l.known) return;
  if (bytes != h.bytes) {
    fail_peer(static_cast<int>(h.from), fmt::format("{} bytes came of a message that has {}", bytes, h.bytes));
    return lost(l);
  }
  if (l.at) std::memcpy(l.at, payload, bytes);
  landed(h, l);
}

}  // namespace muster
