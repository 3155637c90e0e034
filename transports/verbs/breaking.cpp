// How VerbsNetwork notices that a connection broke, and what becomes of it and of what it had under way.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "transports/verbs/verbs_network.h"

namespace muster::verbs {
namespace {

constexpr int kFruitless = 3;  // times that a connection may break before anything has moved over it

}  // namespace

// --- noticed ---

void VerbsNetwork::beat() {
  const auto now = Clock::now();
  if (now < next_beat_) return;
  next_beat_ = now + settings_.heartbeat;
  for (auto& [peer, link] : links_) {
    if (link->state != PeerLink::State::ready || !link->broken.empty() || link->left) continue;
    for (auto& pair : link->pairs) {
      Busy& b = adapters_[pair->adapter_index];
      if (!pair->posted.empty() || b.under_way == b.adapter->most_sent()) continue;
      try {
        pair->post_heartbeat();
        ++b.under_way;
      } catch (const std::exception& e) {
        link->broken = e.what();
        any_broken_ = true;
      }
    }
  }
}

void VerbsNetwork::take_events() {
  for (size_t a = 0; a < adapters_.size(); ++a) {
    const Adapter& adapter = *adapters_[a].adapter;
    ibv_async_event e;
    while (adapter.library().get_async_event(adapter.context(), &e) == 0) {
      const ibv_event_type type = e.event_type;
      const int port = e.element.port_num;
      const uint32_t pair = type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR ? e.element.qp->qp_num : 0;
      adapter.library().ack_async_event(&e);
      switch (type) {
        case IBV_EVENT_PORT_ERR: port_failed(a, port, name_of(type)); break;
        case IBV_EVENT_PORT_ACTIVE: log_warn("verbs: {}:{} is active again", adapter.name(), port); break;
        case IBV_EVENT_DEVICE_FATAL: port_failed(a, 0, name_of(type)); break;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
          if (const auto found = adapters_[a].pairs.find(pair); found != adapters_[a].pairs.end()) {
            PeerLink& link = *found->second.first;
            if (link.broken.empty()) link.broken = fmt::format("{} at {}", name_of(type), where(link, found->second.second->path));
            any_broken_ = true;
          }
          break;
        default: log_info(Topic::net, "verbs: {}: {}", adapter.name(), name_of(type));
      }
    }
  }
}

// A connection that has another port goes on there at once. Others wait as long as their queue pairs do: cables are plugged in
// again.
void VerbsNetwork::port_failed(size_t adapter, int port, const char* event) {
  const auto hit = [&](size_t p) { return adapter_of_[p] == adapter && (port == 0 || ports_[p].number == port); };
  log_warn("verbs: {}{} has failed ({}): look at its cable and at the kernel's log (dmesg)", adapters_[adapter].adapter->name(),
           port ? fmt::format(":{}", port) : "", event);
  for (auto& [peer, link] : links_) {
    const bool uses = std::any_of(link->pairs.begin(), link->pairs.end(), [&](const auto& pair) { return hit(pair->path.local); });
    const bool other = std::any_of(link->candidates.begin(), link->candidates.end(), [&](const Candidate& c) { return !hit(c.path.local); });
    if (!uses || !(other || port == 0) || link->state != PeerLink::State::ready) continue;
    if (link->broken.empty()) link->broken = fmt::format("{} at {}", event, adapters_[adapter].adapter->name());
    any_broken_ = true;
  }
}

// --- what becomes of it ---

// Of what the old queue pairs had under way the peer says what it has; the rest is sent again.
void VerbsNetwork::settle_old(PeerLink& link, const Hello& h) {
  auto unsettled = std::move(link.unsettled);
  link.unsettled.clear();
  for (size_t i = 0; i < unsettled.size(); ++i) {
    Unsettled& u = unsettled[i];
    uint32_t delivered = (h.base == link.base ? h.received[i] : 0) - u.finished;
    for (const auto& [op, message, registration] : u.posted) {
      const bool came = message && static_cast<int32_t>(delivered) > 0;
      if (came) --delivered;
      if (op) came ? finished(*op) : link.waiting.push_back(op);
    }
  }
}

// Ends the queue pairs of a connection that is said to be broken. What was under way is kept until the peer has said what it got.
void VerbsNetwork::retire(PeerLink& link) {
  for (auto& pair : link.pairs) pair->stop();
  // All that was delivered has a completion by now, and counts.
  while (take_completions()) {
  }
  if (link.state == PeerLink::State::ready) {
    link.since = Clock::now();
    link.base = link.epoch;
    link.base_received = {};
    link.unsettled.clear();
    for (size_t i = 0; i < link.pairs.size(); ++i) {
      link.base_received[i] = link.pairs[i]->received;
      link.unsettled.push_back({link.pairs[i]->posted, link.pairs[i]->finished});
    }
  }
  for (auto& pair : link.pairs) {
    Busy& b = adapters_[pair->adapter_index];
    b.under_way -= static_cast<uint32_t>(pair->posted.size());
    b.pairs.erase(pair->number());
  }
  link.pairs.clear();
  link.queues = 0;
  link.state = PeerLink::State::meeting;
  link.first_echo = {};
  link.pause = {};
  link.turn = 0;
  link.next_try = Clock::now();
  for (Candidate& c : link.candidates) c = {c.path};
}

void VerbsNetwork::meet_anew() {
  any_broken_ = false;
  std::vector<int> peers;
  for (const auto& [peer, link] : links_)
    if (!link->broken.empty() && link->state == PeerLink::State::ready) peers.push_back(peer);
  for (const int peer : peers) {
    PeerLink& link = *links_.at(peer);
    if (link.left) {
      drop(link);
      continue;
    }
    link.fruitless = link.moved ? 0 : link.fruitless + 1;
    if (link.fruitless == kFruitless) {
      give_up(link, std::string(link.broken));
      continue;
    }
    log_warn("verbs: the connection to {} broke: {}. It is made anew", setup().rank_name(peer), link.broken);
    retire(link);
  }
  wake();
}

void VerbsNetwork::drop(PeerLink& link) noexcept {
  const std::unique_ptr<PeerLink> owner = std::move(links_.at(link.peer));
  links_.erase(link.peer);
  gone_.insert(link.peer);
  std::vector<WireOp*> open(link.waiting.begin(), link.waiting.end());
  for (const Unsettled& u : link.unsettled)
    for (const auto& p : u.posted) open.push_back(p.op);
  for (auto& pair : link.pairs) {
    for (const auto& p : pair->posted) open.push_back(p.op);
    Busy& b = adapters_[pair->adapter_index];
    b.under_way -= static_cast<uint32_t>(pair->posted.size());
    b.pairs.erase(pair->number());
  }
  link.pairs.clear();  // from here on no adapter reads or writes for it
  for (WireOp* op : open)
    if (op) finished(*op);
}

void VerbsNetwork::give_up(PeerLink& link, const std::string& why) {
  fail_peer(link.peer, why);
  std::string unused;
  for (const Candidate& c : link.candidates) say(link.ports, hello(link, Hello::Kind::refused), c.path, unused);
  drop(link);
}

void VerbsNetwork::disconnect(int peer) noexcept {
  if (const auto l = links_.find(peer); l != links_.end())
    drop(*l->second);
  else
    gone_.insert(peer);
}

}  // namespace muster::verbs
