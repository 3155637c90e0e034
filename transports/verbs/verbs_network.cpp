#include "transports/verbs/verbs_network.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"

namespace muster::verbs {
namespace {

// What a sending end needs to write into a receiving end's ring.
struct WireRing {
  uint64_t at;
  uint32_t key[kMostPorts];  // by adapter of the receiver's
};
static_assert(sizeof(WireRing) <= kInlineBytes);

// Copying less takes no longer than finding out whether it need be copied.
constexpr uint32_t kInPlace = 1024;


std::string library_file(const Options& options) {
  const std::string& name = options.text("NCCL_IBVERBS_LIB");
  return name.empty() ? "libibverbs.so.1" : name;
}

struct Usable {
  std::vector<std::unique_ptr<Adapter>> adapters;  // all that can be opened
  std::vector<Port> ports;                         // those to use, best first
};
// Throws system_error, saying why, where there is no port to use.
Usable usable_ports(const Options& options) {
  Usable r;
  std::string problems, why_not;
  r.adapters = Adapter::open_all(Library::load(library_file(options)), problems);
  std::vector<Port> all;
  for (const auto& a : r.adapters)
    for (Port& p : a->ports()) all.push_back(std::move(p));
  r.ports = choose_ports(all, PortWishes::from(options), why_not);
  if (r.ports.empty()) fail(Result::system_error, "no RDMA port of this host serves: {}{}{}", why_not, problems.empty() ? "" : "; ", problems);
  return r;
}

}  // namespace

std::unique_ptr<Network> make_verbs_network(const NetworkSetup& setup) { return std::make_unique<VerbsNetwork>(setup); }

std::string verbs_problem(const Options& options) {
  try {
    usable_ports(options);
    return {};
  } catch (const Error& e) {
    if (e.code() == Result::invalid_usage) throw;
    return e.what();
  }
}

VerbsNetwork::VerbsNetwork(const NetworkSetup& the_setup)
    : WiredNetwork(the_setup),
      settings_(Settings::from(the_setup.options)),
      patience_(std::chrono::duration_cast<Clock::duration>(the_setup.options.seconds("MUSTER_INIT_TIMEOUT"))),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      psn_(std::random_device{}() & 0xffffff),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!events_ || !wake_) fail_errno(errno, "making descriptors for RDMA", "Raise the limit on open files (ulimit -n)");
  auto [opened, ports] = usable_ports(setup().options);
  ports_ = std::move(ports);
  for (auto& a : opened) {
    if (std::none_of(ports_.begin(), ports_.end(), [&](const Port& p) { return p.device == a->name(); })) continue;
    a->start(settings_);
    epoll_event e{.events = EPOLLIN};
    if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, a->event_fd(), &e) != 0) fail_errno(errno, "watching an RDMA device");
    fcntl(a->context()->async_fd, F_SETFL, fcntl(a->context()->async_fd, F_GETFL) | O_NONBLOCK);
    adapters_.push_back({std::move(a)});
  }
  Registrations::Limits limits = Registrations::Limits::of_machine();
  limits.only_shared = !adapters_[0].adapter->library().fork_is_harmless;
  registrations_.emplace([this](std::span<const std::byte> memory) { return register_everywhere(memory, Adapter::Use::send); }, limits);
  std::vector<KnownPort> known;
  for (const Port& p : ports_) {
    const auto a = std::find_if(adapters_.begin(), adapters_.end(), [&](const Busy& b) { return b.adapter->name() == p.device; });
    adapter_of_.push_back(static_cast<size_t>(a - adapters_.begin()));
    greeters_.push_back(std::make_unique<Greeter>(*a->adapter, p, settings_));
    known.push_back({p, greeters_.back()->queue(), static_cast<uint32_t>(adapter_of_.back())});
    log_info(Topic::net, "verbs: {} at {:g} Gbit/s, {}", p.name(), p.gbit_per_s, p.gids.empty() ? fmt::format("LID {}", p.lid) : p.gids[0].text());
  }
  address_ = write_address(known);
  thread_ = start_thread("muster-verbs", [this] { meet_peers(); });
}

VerbsNetwork::~VerbsNetwork() {
  {
    const std::lock_guard lock(mutex_);
    say_goodbye();
    stop_ = true;
  }
  wake();
  thread_.join();
  while (!links_.empty()) drop(*links_.begin()->second);
  free_ends();
}

// --- memory ---

std::shared_ptr<void> VerbsNetwork::register_ring(std::span<std::byte> ring) {
  madvise(ring.data(), ring.size(), MADV_DONTFORK);  // a child would take the pages that adapters write to
  return std::const_pointer_cast<Keys>(register_everywhere(ring, Adapter::Use::be_written_by_peers));
}

std::shared_ptr<const VerbsNetwork::Keys> VerbsNetwork::register_everywhere(std::span<const std::byte> memory, Adapter::Use use) const {
  auto keys = std::make_shared<Keys>();
  for (const Busy& b : adapters_) keys->by_adapter.push_back(b.adapter->register_memory(memory, use));
  return keys;
}

std::string VerbsNetwork::describe_ring(const WireEnd& end) {
  const auto& keys = *static_cast<const Keys*>(end.registration.get());
  WireRing w{reinterpret_cast<uint64_t>(end.ring().data()), {}};
  for (size_t i = 0; i < keys.by_adapter.size(); ++i) w.key[i] = keys.by_adapter[i]->rkey;
  return {reinterpret_cast<const char*>(&w), sizeof w};
}

// --- out ---

void VerbsNetwork::post(WireOp& op) {
  if (gone_.contains(op.peer)) return finished(op);
  PeerLink& link = link_to(op.peer);
  if (!link.wanted) {
    link.wanted = true;
    link.since = Clock::now();
    if (link.state == PeerLink::State::meeting) {
      link.next_try = link.since;
      wake();
    }
  }
  if (link.state == PeerLink::State::ready && try_post(link, op)) return;
  link.waiting.push_back(&op);
}

// Of a payload, as the adapter reads it: the ring, what is registered, or this end's ring again, where a place is free for what
// isn't: whether memory of the program's that it hasn't promised to keep is still the same when it is sent from the next time
// nobody could tell.
QueuePair::Source VerbsNetwork::source_of(const WireOp& op, size_t adapter) {
  const auto key_of = [&](const std::shared_ptr<const void>& keys) { return static_cast<const Keys*>(keys.get())->by_adapter[adapter]->lkey; };
  const auto ring = op.end->ring();
  if (op.payload >= ring.data() && op.payload < ring.data() + ring.size()) return {op.payload, key_of(op.end->registration), nullptr};
  if (op.header.bytes >= kInPlace)
    if (auto keys = registrations_->find(op.payload, op.header.bytes)) {
      ++sent_in_place_;
      return {op.payload, key_of(keys), std::move(keys)};
    }
  std::byte* const place = ring.data() + op.header.offset;
  std::memcpy(place, op.payload, op.header.bytes);
  return {place, key_of(op.end->registration), nullptr};
}

// False: it must wait, for room or for the place of the peer's ring.
bool VerbsNetwork::try_post(PeerLink& link, WireOp& op) {
  if (op.header.bytes > 0 && !op.end->knows_peer_ring) return false;
  for (size_t i = 0; i < link.pairs.size(); ++i) {
    QueuePair& pair = *link.pairs[link.turn++ % link.pairs.size()];
    Busy& b = adapters_[pair.adapter_index];
    if (!pair.has_room() || b.under_way == b.adapter->most_sent()) continue;
    WireRing to{};
    uint32_t key = 0;
    QueuePair::Source from;
    if (op.header.bytes > 0) {
      std::memcpy(&to, op.end->peer_ring, sizeof to);
      key = to.key[link.ports[pair.path.remote].adapter];
      from = source_of(op, pair.adapter_index);
    }
    pair.post(op, std::move(from), to.at + op.header.offset, key);
    ++b.under_way;
    return true;
  }
  return false;
}

void VerbsNetwork::flush(PeerLink& link) {
  if (link.state != PeerLink::State::ready) return;
  std::deque<WireOp*> waiting;
  waiting.swap(link.waiting);
  for (WireOp* op : waiting)
    if (!try_post(link, *op)) link.waiting.push_back(op);
}

// --- in ---

bool VerbsNetwork::poll() {
  if (attention_.load(std::memory_order_relaxed)) [[unlikely]]
    attend();
  registrations_->sweep();
  const bool moved = take_completions();
  if (any_broken_) [[unlikely]]
    meet_anew();
  return moved;
}

bool VerbsNetwork::take_completions() {
  bool moved = false;
  for (Busy& b : adapters_) {
    moved |= take_received(b);
    moved |= take_sent(b);
  }
  return moved;
}

bool VerbsNetwork::take_received(Busy& b) {
  ibv_wc wc[32];
  const int n = ibv_poll_cq(b.adapter->received(), 32, wc);
  for (int i = 0; i < n; ++i) {
    const auto found = b.pairs.find(wc[i].qp_num);
    if (wc[i].status == IBV_WC_SUCCESS && found != b.pairs.end()) {
      auto [link, pair] = found->second;
      ++pair->received;
      if (link->state == PeerLink::State::opened) became_ready(*link);
      take_message(*link, b.adapter->message(wc[i].wr_id), wc[i].byte_len);
    }
    b.adapter->receive_again(wc[i].wr_id);
  }
  return n > 0;
}

void VerbsNetwork::take_message(PeerLink& link, const std::byte* message, size_t bytes) {
  if (bytes == 0) return;  // a greeting
  WireHeader h;
  if (bytes != sizeof h) return;
  std::memcpy(&h, message, sizeof h);
  if (h.from != static_cast<uint32_t>(link.peer)) return;
  link.moved = true;
  link.left = link.left || h.kind == WireKind::goodbye;
  landed(h, land(h));  // its payload came before
  if (h.kind == WireKind::ring) flush(link);
}

bool VerbsNetwork::take_sent(Busy& b) {
  ibv_wc wc[32];
  const int n = ibv_poll_cq(b.adapter->sent(), 32, wc);
  for (int i = 0; i < n; ++i) {
    const auto found = b.pairs.find(wc[i].qp_num);
    if (found == b.pairs.end()) continue;
    auto [link, pair] = found->second;
    if (wc[i].status != IBV_WC_SUCCESS) {
      sending_failed(b, *link, *pair, wc[i]);
      continue;
    }
    --b.under_way;
    if (WireOp* const op = pair->delivered()) {
      link->moved = true;
      finished(*op);
    }
    if (!link->waiting.empty()) flush(*link);
  }
  return n > 0;
}

void VerbsNetwork::sending_failed(Busy&, PeerLink& link, QueuePair& pair, const ibv_wc& wc) {
  if (!link.broken.empty()) return;  // what was flushed behind the first
  link.broken = fmt::format("{} (vendor's code {}) when sending from {}. {}", name_of(wc.status), wc.vendor_err, where(link, pair.path), remedy_for(wc.status));
  any_broken_ = true;
  // The peer has closed the communicator and freed its ring: nobody waits for this message, while those of others do wait for a
  // connection.
  if (wc.status == IBV_WC_REM_ACCESS_ERR && !pair.posted.empty() && pair.posted.front().op) {
    link.broken = fmt::format("{} when sending from {}: the peer has closed a communicator that this rank still sent to, or is gone", name_of(wc.status), where(link, pair.path));
    link.moved = true;
    --adapters_[pair.adapter_index].under_way;
    finished(*pair.refused());
  }
}

std::string VerbsNetwork::where(const PeerLink& link, const Path& path) const {
  std::vector<Port> remote;
  for (const KnownPort& k : link.ports) remote.push_back(k.port);
  return text_of(path, ports_, remote);
}

// --- sleeping ---

bool VerbsNetwork::arm_events() {
  for (Busy& b : adapters_) b.adapter->arm();
  return !poll();
}

}  // namespace muster::verbs
