// How VerbsNetwork makes connections (hello.h), also anew where they broke.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "transports/verbs/verbs_network.h"

namespace muster::verbs {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstPause = 10ms, kLongestPause = 500ms;  // between attempts
constexpr auto kEchoes = 200ms;   // after the first one, for those of other ports: a busy host answers late, and a port left out stays so
constexpr auto kOpening = 2s;     // without an answer to `open`: its path has failed
constexpr auto kWarning = 10s;    // without any answer
constexpr size_t kMostCandidates = 16;

}  // namespace

// --- what is said ---

Hello VerbsNetwork::hello(const PeerLink& link, Hello::Kind kind) const {
  Hello h;
  h.kind = kind;
  h.secret = setup().secret(setup().rank, link.peer);
  h.from = static_cast<uint32_t>(setup().rank);
  h.to = static_cast<uint32_t>(link.peer);
  h.epoch = link.epoch;
  h.base = link.base;
  std::copy(link.base_received.begin(), link.base_received.end(), h.received);
  h.queues = static_cast<uint8_t>(link.queues);
  if (link.queues > 0) {
    h.rails = static_cast<uint8_t>(link.pairs.size() / static_cast<size_t>(link.queues));
    for (size_t i = 0; i < link.pairs.size(); ++i) {
      h.pair[i] = link.pairs[i]->number();
      h.rail[i / static_cast<size_t>(link.queues)] = WirePath::from(link.pairs[i]->path);
    }
  }
  h.first = (psn_ + 7919 * link.epoch) & 0xffffff;  // packets of an older connection can't be taken for those of this one
  return h;
}

bool VerbsNetwork::say(const std::vector<KnownPort>& to, Hello h, const Path& path, std::string& why) {
  h.path = WirePath::from(path);
  const KnownPort& k = to[path.remote];
  return greeters_[path.local]->send(path.local_gid, {k.port, path.remote_gid, k.greeter}, {reinterpret_cast<const char*>(&h), sizeof h}, why);
}

VerbsNetwork::PeerLink& VerbsNetwork::link_to(int peer) {
  auto& l = links_[peer];
  if (l) return *l;
  l = std::make_unique<PeerLink>();
  l->peer = peer;
  l->since = Clock::now();
  l->ports = read_address(address_of(peer));
  std::vector<Port> remote;
  for (const KnownPort& k : l->ports) remote.push_back(k.port);
  for (const Path& p : possible_paths(ports_, remote))
    if (l->candidates.size() < kMostCandidates) l->candidates.push_back({p});
  return *l;
}

std::string VerbsNetwork::tried(const PeerLink& link) const {
  std::string r;
  for (const Candidate& c : link.candidates)
    r += fmt::format("{}{}: {}", r.empty() ? "" : "; ", where(link, c.path), c.works ? "works" : c.why);
  return r;
}

void VerbsNetwork::try_again(PeerLink& link, Clock::time_point now) {
  using State = PeerLink::State;
  link.next_try = Clock::time_point::max();
  if (link.state == State::opened) {  // the rank's own threads may be elsewhere
    const int peer = link.peer;
    take_completions();
    if (!links_.contains(peer)) return;
  }
  if (link.state == State::ready) return;
  if (link.candidates.empty()) {
    std::string mine, others;
    for (const Port& p : ports_) mine += fmt::format(" {} {}", p.name(), p.gids.empty() ? "" : p.gids[0].text());
    for (const KnownPort& k : link.ports) others += fmt::format(" {} {}", k.port.name(), k.port.gids.empty() ? "" : k.port.gids[0].text());
    return give_up(link, fmt::format("no port of this rank fits one of the peer's: here{}, there{}. Link layer, RoCE version and address family must be "
                                     "equal (NCCL_IB_HCA, NCCL_IB_ROCE_VERSION_NUM, NCCL_IB_ADDR_FAMILY, NCCL_IB_GID_INDEX)", mine, others));
  }
  const auto waited = now - link.since;
  const auto patience = link.base > 0 ? Clock::duration(settings_.anew) : patience_;
  if (waited >= patience)
    return give_up(link, fmt::format("{}{}. Tried: {}. Look at ports (ibv_devinfo), cables and switches, and choose what reaches the peer by NCCL_IB_HCA, "
                                     "NCCL_IB_GID_INDEX or NCCL_IB_ADDR_RANGE",
                                     link.broken.empty() ? std::string("the peer didn't answer") : link.broken + ". The connection couldn't be made anew",
                                     fmt::format(" within {:.0f} s", std::chrono::duration<double>(waited).count()), tried(link)));
  if (waited > kWarning && !link.warned) {
    link.warned = true;
    log_warn("verbs: {} isn't reached yet by {}: {}", setup().rank_name(link.peer), setup().rank_name(setup().rank), tried(link));
  }
  if (link.state == State::opening && now - link.said > kOpening) {  // that way doesn't lead there any more
    if (link.broken.empty()) link.broken = "the peer fell silent while the connection was made";
    retire(link);
  }
  if (link.state == State::meeting && opens(link.peer) && link.first_echo != Clock::time_point{}) {
    const int peer = link.peer;
    open(link);
    if (!links_.contains(peer)) return;
  }
  if (link.state == State::meeting) {
    if (opens(link.peer)) {
      Hello h = hello(link, Hello::Kind::probe);
      ++h.epoch;
      for (Candidate& c : link.candidates)
        if (!c.works) say(link.ports, h, c.path, c.why);
    } else {  // any of them will do
      Candidate& c = link.candidates[link.turn++ % link.candidates.size()];
      say(link.ports, hello(link, Hello::Kind::want), c.path, c.why);
    }
  } else if (link.state == State::opening) {
    std::string why;
    say(link.ports, hello(link, Hello::Kind::open), link.way, why);
  }
  link.pause = std::clamp<Clock::duration>(2 * link.pause, kFirstPause, kLongestPause);
  link.next_try = std::min(now + link.pause, link.since + patience);
}

// The opener, when it knows paths that work: all rails, or after a while those that there are.
void VerbsNetwork::open(PeerLink& link) {
  std::vector<Path> working, all;
  for (const Candidate& c : link.candidates) {
    all.push_back(c.path);
    if (c.works) working.push_back(c.path);
  }
  const auto rails = rails_of(working);
  if (rails.size() < rails_of(all).size() && Clock::now() < link.first_echo + kEchoes) return;
  try {
    make_pairs(link, rails, settings_.queues);
  } catch (const std::exception& e) {
    return give_up(link, e.what());
  }
  ++link.epoch;
  link.state = PeerLink::State::opening;
  link.way = rails[0];
  link.said = Clock::now();
  link.pause = {};
}

void VerbsNetwork::make_pairs(PeerLink& link, std::span<const Path> rails, int queues) {
  link.queues = queues;
  for (const Path& rail : rails)
    for (int i = 0; i < queues; ++i) {
      Busy& b = adapters_[adapter_of_[rail.local]];
      link.pairs.push_back(std::make_unique<QueuePair>(*b.adapter, adapter_of_[rail.local], ports_[rail.local], rail, settings_));
      b.pairs[link.pairs.back()->number()] = {&link, link.pairs.back().get()};
    }
}

bool VerbsNetwork::connect_pairs(PeerLink& link, const Hello& h) {
  for (size_t i = 0; i < link.pairs.size(); ++i) {
    QueuePair& pair = *link.pairs[i];
    const int e = pair.connect(link.ports[pair.path.remote].port, h.pair[i], h.first);
    if (e == 0) continue;
    give_up(link, fmt::format("connecting {} failed: {}. Look at the addresses and routes of both ports' interfaces (ip addr, ip route)", where(link, pair.path),
                              describe_errno(e)));
    return false;
  }
  return true;
}

void VerbsNetwork::became_ready(PeerLink& link) {
  link.state = PeerLink::State::ready;
  link.next_try = Clock::time_point::max();
  if (link.epoch > 1) log_warn("verbs: the connection to {} goes on by {}", setup().rank_name(link.peer), where(link, link.way));
  link.broken.clear();
  link.moved = false;
  link.warned = false;
  wake();  // its heart beats from now on
  flush(link);
}

// --- what is heard ---

void VerbsNetwork::heard(Hello h) {
  if (h.magic != Hello::kMagic || h.to != static_cast<uint32_t>(setup().rank) || h.from == h.to || h.from >= static_cast<uint32_t>(setup().nranks)) return;
  const int peer = static_cast<int>(h.from);
  if (h.secret != setup().secret(peer, setup().rank)) return;
  const auto known = links_.find(peer);
  std::vector<KnownPort> ports;
  try {
    ports = known != links_.end() ? known->second->ports : read_address(address_of(peer));
  } catch (const Error& e) {
    return fail_peer(peer, e.what());
  }
  const Path back = reversed(h.path.path());
  if (back.local >= ports_.size() || back.remote >= ports.size() || h.rails > kMostPorts || h.queues > kMostQueues) return;
  for (int i = 0; i < h.rails; ++i)
    if (h.rail[i].remote >= ports_.size() || h.rail[i].local >= ports.size()) return;
  std::string why;
  if (gone_.contains(peer)) {
    if (h.kind == Hello::Kind::refused) return;
    PeerLink nobody;
    nobody.peer = peer;
    say(ports, hello(nobody, Hello::Kind::refused), back, why);
    return;
  }
  switch (h.kind) {
    case Hello::Kind::probe:
      if (opens(peer)) return;
      h.kind = Hello::Kind::echo;
      std::swap(h.from, h.to);
      h.secret = setup().secret(setup().rank, peer);
      say(ports, h, back, why);
      return;
    case Hello::Kind::want: {
      if (!opens(peer)) return;
      PeerLink& link = link_to(peer);
      if (link.state == PeerLink::State::ready && h.epoch == link.epoch) {
        if (link.broken.empty()) link.broken = "it broke on the peer's side";
        any_broken_ = true;
        return;
      }
      if (link.state == PeerLink::State::meeting && link.next_try == Clock::time_point::max()) {
        link.since = Clock::now();
        link.next_try = link.since;
      }
      return;
    }
    case Hello::Kind::echo:
      if (opens(peer) && known != links_.end()) heard_echo(*known->second, h);
      return;
    case Hello::Kind::open:
      if (!opens(peer)) heard_open(link_to(peer), h);
      return;
    case Hello::Kind::opened:
      if (!opens(peer) || known == links_.end()) return;
      if (PeerLink& link = *known->second; link.state == PeerLink::State::opening && h.epoch == link.epoch) {
        if (!connect_pairs(link, h)) return;
        settle_old(link, h);
        try {
          for (auto& pair : link.pairs) {
            pair->post_greeting();
            ++adapters_[pair->adapter_index].under_way;
          }
          became_ready(link);
        } catch (const std::exception& e) {
          give_up(link, e.what());
        }
      }
      return;
    case Hello::Kind::refused:
      give_up(link_to(peer), "the peer has given it up; its log or its error says why");
      return;
  }
}

void VerbsNetwork::heard_echo(PeerLink& link, const Hello& h) {
  if (link.state != PeerLink::State::meeting || h.epoch != link.epoch + 1) return;
  const Path path = h.path.path();  // the echo has the probe's
  for (Candidate& c : link.candidates)
    if (c.path == path) c.works = true;
  if (link.first_echo == Clock::time_point{}) link.first_echo = Clock::now();
  const int peer = link.peer;
  open(link);
  if (!links_.contains(peer)) return;
  if (link.state == PeerLink::State::opening)
    try_again(link, Clock::now());
  else
    link.next_try = std::min(link.next_try, link.first_echo + kEchoes);
}

void VerbsNetwork::heard_open(PeerLink& link, const Hello& h) {
  if (h.epoch > link.epoch) {
    if (!link.pairs.empty()) {
      if (link.broken.empty()) link.broken = "it broke on the peer's side";
      retire(link);
    }
    std::vector<Path> rails;
    for (int i = 0; i < h.rails; ++i) rails.push_back(reversed(h.rail[i].path()));
    try {
      make_pairs(link, rails, h.queues);
    } catch (const std::exception& e) {
      return give_up(link, e.what());
    }
    link.epoch = h.epoch;
    link.way = reversed(h.path.path());
    if (!connect_pairs(link, h)) return;
    settle_old(link, h);
    link.state = PeerLink::State::opened;
    link.pause = {};
  } else if (h.epoch < link.epoch || link.state != PeerLink::State::opened) {
    return;
  }
  // The first number is the opener's.
  Hello answer = hello(link, Hello::Kind::opened);
  answer.first = h.first;
  std::string why;
  say(link.ports, answer, link.way, why);
  link.next_try = Clock::now() + kLongestPause;
}

// --- the thread ---

void VerbsNetwork::wake() noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const auto n = write(wake_.get(), &one, sizeof one);
}

void VerbsNetwork::meet_peers() {
  std::vector<pollfd> watched{{wake_.get(), POLLIN, 0}};
  for (const auto& g : greeters_) watched.push_back({g->event_fd(), POLLIN, 0});
  for (const Busy& b : adapters_) watched.push_back({b.adapter->context()->async_fd, POLLIN, 0});
  for (;;) {
    // Ranks that wait for messages take the lock again as soon as they let it go: then they do what is to be done.
    std::unique_lock lock(mutex_, std::try_to_lock);
    while (!lock) {
      attention_.store(true, std::memory_order_relaxed);
      std::this_thread::sleep_for(200us);
      lock.try_lock();
    }
    if (stop_) return;
    const auto next = attend();
    lock.unlock();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    ::poll(watched.data(), watched.size(), next == Clock::time_point::max() ? -1 : static_cast<int>(std::clamp<int64_t>(left, 0, 1000)));
  }
}

VerbsNetwork::Clock::time_point VerbsNetwork::attend() {
  attention_.store(false, std::memory_order_relaxed);
  uint64_t count = 0;
  [[maybe_unused]] const auto n = read(wake_.get(), &count, sizeof count);
  for (const auto& g : greeters_) {
    g->arm();
    g->receive([&](std::string_view text) {
      Hello h;
      if (text.size() != sizeof h) return;
      std::memcpy(&h, text.data(), sizeof h);
      heard(h);
    });
  }
  take_events();
  registrations_->sweep();  // although the program's threads may be elsewhere
  beat();
  if (any_broken_) meet_anew();
  const auto now = Clock::now();
  std::vector<int> due;
  for (const auto& [peer, link] : links_)
    if (link->next_try <= now) due.push_back(peer);
  for (const int peer : due)
    if (const auto l = links_.find(peer); l != links_.end()) try_again(*l->second, now);
  auto next = Clock::time_point::max();
  for (const auto& [peer, link] : links_)
    next = std::min({next, link->next_try, link->state == PeerLink::State::ready ? next_beat_ : next});
  return next;
}

}  // namespace muster::verbs
