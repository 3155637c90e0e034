#include "transports/net_plugin/net_plugin_network.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace muster {

using net_plugin::Device;
using net_plugin::Handle;
using net_plugin::kRecord;
using net_plugin::kShort;
using net_plugin::kUnderWay;
using net_plugin::Outgoing;
using net_plugin::ReceiveComm;
using net_plugin::SendComm;

namespace {

constexpr size_t kMostRails = 4;
constexpr uint64_t kServeEvery = 16;  // rounds: to look for questions costs a system call
constexpr uint8_t kApart = 1;         // WireHeader::own of a short message whose payload goes like a long one's, since no processor reads it
constexpr long kNap = 100'000;        // ns that a rank sleeps before it looks again

// The first record of a connection.
struct Hello {
  uint64_t secret;
  uint32_t from;
  uint32_t index;  // of the peer's inlets
};
static_assert(sizeof(Hello) == 16);

template <class T>
std::span<const std::byte> bytes_of(const T& v) {
  return std::as_bytes(std::span(&v, 1));
}

// The fastest, from one on that depends on the rank, so that ranks of a host share them out.
std::vector<Device> chosen_devices(std::vector<Device> all, int rank) {
  int fastest = 0;
  for (const Device& d : all) fastest = std::max(fastest, d.megabits);
  std::erase_if(all, [&](const Device& d) { return d.megabits < fastest; });
  if (!all.empty()) std::rotate(all.begin(), all.begin() + static_cast<long>(static_cast<size_t>(rank) % all.size()), all.end());
  if (all.size() > kMostRails) all.resize(kMostRails);
  return all;
}

}  // namespace

NetPluginNetwork::NetPluginNetwork(std::shared_ptr<const net_plugin::Plugin> plugin, const NetworkSetup& setup)
    : WiredNetwork(setup),
      plugin_(std::move(plugin)),
      meeting_(setup.options.text("MUSTER_PORT_RANGE"), setup.interfaces),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  if (!timer_) fail_errno(errno, "timerfd_create");
  context_ = plugin_->begin(setup.secret(setup.rank, setup.rank));
  try {
    rails_ = chosen_devices(plugin_->devices(), setup.rank);
    if (rails_.empty())
      fail(Result::system_error, "the network plugin {} has no device that takes host memory. NCCL_NET_PLUGIN=none does without it", plugin_->name());
    for (const Device& d : rails_) {
      if (d.most_bytes < kRecord)
        fail(Result::system_error, "{} of the network plugin {} takes messages of {} bytes, {} are needed", d.name, plugin_->name(), d.most_bytes,
             kRecord);
      slot_bytes_ = std::min(slot_bytes_, d.most_bytes);
      log_info(Topic::net, "{}: device {} ({}), {} Mbit/s", plugin_->name(), d.number, d.name, d.megabits);
    }
  } catch (...) {
    plugin_->end(context_);
    throw;
  }
}

NetPluginNetwork::~NetPluginNetwork() {
  const std::lock_guard lock(mutex_);
  say_goodbye();
  closing_ = true;
  while (!peers_.empty()) disconnect(peers_.begin()->first);
  free_ends();
  plugin_->end(context_);
}

// The plugin's name, and where to ask for handles.
std::string NetPluginNetwork::address() const { return plugin_->name() + "\n" + meeting_.address(); }

// Nothing tells when a plugin has something: the rank looks again soon.
bool NetPluginNetwork::arm_events() {
  const itimerspec soon{{0, 0}, {0, kNap}};
  timerfd_settime(timer_.get(), 0, &soon, nullptr);  // also empties it
  return true;
}

std::shared_ptr<void> NetPluginNetwork::register_ring(std::span<std::byte> ring) {
  // Known to the plugin when something first goes to or from it; forgotten with the end.
  return {ring.data(), [this](std::byte* data) { forget(data); }};
}

void NetPluginNetwork::forget(std::byte* memory) noexcept {
  for (auto& [peer, p] : peers_) {
    for (auto& c : p.payloads) c->rings().forget(memory);
    for (Inlet& i : p.inlets)
      if (i.comm) i.comm->rings().forget(memory);
  }
}

std::shared_ptr<void> NetPluginNetwork::show_gpu_memory(std::span<std::byte> memory) {
  if (!reads_gpu_memory()) return Network::show_gpu_memory(memory);
  const std::lock_guard lock(mutex_);
  gpu_memory_.push_back(memory);
  return {memory.data(), [this](std::byte* data) {
            const std::lock_guard held(mutex_);
            forget(data);
            std::erase_if(gpu_memory_, [&](const auto& m) { return m.data() == data; });
          }};
}

std::span<std::byte> NetPluginNetwork::gpu_memory_of(const std::byte* payload) const {
  for (const std::span<std::byte> m : gpu_memory_)
    if (std::less_equal<>()(m.data(), payload) && std::less<>()(payload, m.data() + m.size())) return m;
  return {};
}

bool NetPluginNetwork::poll() {
  busy_ = true;
  bool moved = false;
  if (polls_++ % kServeEvery == 0) moved = meeting_.serve([this](const net_plugin::Question& q) { return answer(q); });
  std::vector<std::pair<int, std::string>> broken;
  for (auto& [peer, p] : peers_) {
    try {
      moved = send_some(peer, p) || moved;
      moved = receive_some(peer, p) || moved;
    } catch (const Error& e) {
      broken.emplace_back(peer, e.what());
    }
  }
  for (const auto& [peer, why] : broken) {
    fail_peer(peer, why);
    disconnect(peer);
  }
  finish_done();
  return moved;
}

void NetPluginNetwork::finish_done() {
  busy_ = false;
  for (WireOp* op : std::exchange(done_, {})) finished(*op);
}

// --- who comes ---

// Called by a peer that wants to send. Each listener takes one connection.
std::string NetPluginNetwork::answer(const net_plugin::Question& q) {
  const bool known = q.from < static_cast<uint32_t>(setup().nranks) && q.secret == setup().secret(static_cast<int>(q.from), setup().rank);
  if (!known || q.rails == 0) {
    log_warn("{}: a question that doesn't prove to be from a rank of this job was turned away", name());
    return {};
  }
  const int peer = static_cast<int>(q.from);
  if (lost_.contains(peer)) return {};
  PeerLink& p = peers_[peer];
  const uint64_t secret = setup().secret(setup().rank, peer);
  if (p.asked == q.number) return net_plugin::answer_with(secret, p.handles);  // at another address
  close_inlets(p);
  p.asked = q.number;
  p.handles.clear();
  try {
    const size_t rails = std::min<size_t>(q.rails, rails_.size());
    for (size_t i = 0; i < 1 + rails; ++i) {
      Handle h{};
      p.inlets.emplace_back().listener = plugin_->listen(context_, rails_[i == 0 ? 0 : i - 1].number, h);
      p.handles.append(reinterpret_cast<const char*>(h.data()), h.size());
    }
    p.arriving.resize(rails);
  } catch (const Error& e) {
    close_inlets(p);
    fail_peer(peer, e.what());
    return {};
  }
  return net_plugin::answer_with(secret, p.handles);
}

void NetPluginNetwork::close_inlets(PeerLink& p) noexcept {
  for (Inlet& i : p.inlets)
    if (i.listener) plugin_->close_listen(i.listener);
  p.inlets.clear();
}

// Whether it is there and is that peer's.
bool NetPluginNetwork::greet(int peer, Inlet& in, size_t index) {
  if (in.greeted) return true;
  if (!in.comm) {
    void* const comm = plugin_->accept(in.listener);
    if (!comm) return false;
    in.comm = std::make_unique<ReceiveComm>(*plugin_, comm);
    plugin_->close_listen(std::exchange(in.listener, nullptr));
  }
  const std::span<const std::byte> record = in.comm->next_record(1);
  if (record.empty()) return false;
  Hello h{};
  if (record.size() == sizeof h) std::memcpy(&h, record.data(), sizeof h);
  if (h.secret != setup().secret(peer, setup().rank) || h.from != static_cast<uint32_t>(peer) || h.index != index)
    fail(Result::remote_error, "somebody else connected to what was meant for it");
  return in.greeted = true;
}

// --- out ---

void NetPluginNetwork::post(WireOp& op) {
  if (closing_) return finished(op);
  PeerLink& p = peers_[op.peer];
  p.queue.push_back(&op);
  if (busy_) return;
  busy_ = true;
  try {
    send_some(op.peer, p);
  } catch (const Error& e) {
    fail_peer(op.peer, e.what());
    disconnect(op.peer);
  }
  finish_done();
}

void NetPluginNetwork::ask(int peer, PeerLink& p) {
  const std::string& address = address_of(peer);
  const size_t end = std::min(address.find('\n'), address.size());
  if (address.substr(0, end) != plugin_->name())
    fail(Result::invalid_usage, "it has the network plugin {}, this rank has {}. NCCL_NET_PLUGIN must lead to the same on all ranks",
         end == 0 ? "?" : address.substr(0, end), plugin_->name());
  const net_plugin::Question q{setup().secret(setup().rank, peer), static_cast<uint32_t>(setup().rank), static_cast<uint32_t>(rails_.size()), ++questions_};
  p.asking = std::make_unique<net_plugin::Asking>(address.substr(std::min(end + 1, address.size())), q, setup().secret(peer, setup().rank));
}

bool NetPluginNetwork::connect(int peer, PeerLink& p) {
  if (p.connected) return true;
  if (!p.records) {
    if (!p.asking) ask(peer, p);
    const std::string handles = p.asking->advance();
    if (handles.empty()) return false;
    p.asking.reset();
    const size_t count = handles.size() / sizeof(Handle);
    if (handles.size() % sizeof(Handle) || count < 2 || count > 1 + rails_.size())
      fail(Result::remote_error, "it answered with {} bytes of handles", handles.size());
    for (size_t i = 0; i < count; ++i) {
      Handle h;
      std::memcpy(h.data(), handles.data() + i * sizeof h, sizeof h);
      auto comm = std::make_unique<SendComm>(*plugin_, context_, rails_[i == 0 ? 0 : i - 1].number, h);
      if (i == 0)
        p.records = std::move(comm);
      else
        p.payloads.push_back(std::move(comm));
    }
  }
  bool all = p.records->connect();
  for (auto& c : p.payloads) all = c->connect() && all;
  if (!all) return false;
  p.connected = true;
  Hello h{setup().secret(setup().rank, peer), static_cast<uint32_t>(setup().rank), 0};
  p.records->send_record(bytes_of(h), {}, std::make_shared<Outgoing>());
  for (auto& c : p.payloads) {
    ++h.index;
    c->send_record(bytes_of(h), {}, std::make_shared<Outgoing>());
  }
  return true;
}

void NetPluginNetwork::begin(PeerLink& p, WireOp& op) {
  const std::span<const std::byte> payload(op.payload, op.header.bytes);
  const auto outgoing = std::make_shared<Outgoing>(Outgoing{&op, 0});
  const std::span<std::byte> gpu = payload.empty() ? std::span<std::byte>() : gpu_memory_of(payload.data());
  if (!gpu.empty()) {
    op.header.own = kApart;
    p.records->send_record(bytes_of(op.header), {}, outgoing);
    return p.payloads[p.sent++ % p.payloads.size()]->send_payload(payload, gpu, net_plugin::Plugin::Kind::gpu, op.header.slot_bytes, outgoing);
  }
  if (payload.size() <= kShort) return p.records->send_record(bytes_of(op.header), payload, outgoing);
  p.records->send_record(bytes_of(op.header), {}, outgoing);
  const std::span<std::byte> ring = op.end->ring();
  const bool in_ring = std::less_equal<>()(ring.data(), payload.data()) && std::less<>()(payload.data(), ring.data() + ring.size());
  p.payloads[p.sent++ % p.payloads.size()]->send_payload(payload, in_ring ? ring : std::span<std::byte>(), net_plugin::Plugin::Kind::host,
                                                       op.header.slot_bytes, outgoing);
}

bool NetPluginNetwork::send_some(int peer, PeerLink& p) {
  if (p.queue.empty() && !p.wanted && !p.connected) return false;
  if (!connect(peer, p)) return false;
  bool moved = false;
  for (; !p.queue.empty() && p.records->has_record(); moved = true) {
    begin(p, *p.queue.front());
    p.queue.pop_front();
  }
  moved = p.records->advance(done_) || moved;
  for (auto& c : p.payloads) moved = c->advance(done_) || moved;
  return moved;
}

// --- in ---

bool NetPluginNetwork::receive_some(int peer, PeerLink& p) {
  bool moved = false;
  for (size_t i = 0; i < p.inlets.size(); ++i)
    if (!greet(peer, p.inlets[i], i)) return false;
  if (p.inlets.empty()) return false;
  ReceiveComm& records = *p.inlets[0].comm;
  for (;;) {
    const std::span<const std::byte> record = records.next_record(kUnderWay);
    if (record.empty()) break;
    moved = true;
    WireHeader h{};
    if (record.size() < sizeof h) fail(Result::remote_error, "a record of {} bytes came, which has {} at least", record.size(), sizeof h);
    std::memcpy(&h, record.data(), sizeof h);
    const std::span<const std::byte> rest = record.subspan(sizeof h);
    if (h.bytes <= kShort && h.own != kApart) {
      arrived(h, rest.data(), rest.size());
      continue;
    }
    auto& list = p.arriving[p.received++ % p.arriving.size()];
    list.push_back({h, land(h)});
  }
  return receive_payloads(p) || moved;
}

bool NetPluginNetwork::receive_payloads(PeerLink& p) {
  bool moved = false;
  for (size_t r = 0; r < p.arriving.size(); ++r) {
    ReceiveComm& in = *p.inlets[r + 1].comm;
    auto& list = p.arriving[r];
    for (size_t i = in.expected(); i < list.size(); ++i) {
      const Arriving& a = list[i];
      in.expect({a.landing.at, a.header.bytes}, a.landing.at ? a.landing.end->ring() : std::span<std::byte>(), a.header.bytes);
    }
    while (const std::optional<size_t> bytes = in.next_payload()) {
      moved = true;
      const Arriving a = list.front();
      list.pop_front();
      if (*bytes != a.header.bytes) {
        lost(a.landing);
        fail(Result::remote_error, "{} bytes came of a message that has {}", *bytes, a.header.bytes);
      }
      landed(a.header, a.landing);
    }
  }
  return moved;
}

void NetPluginNetwork::disconnect(int peer) noexcept {
  lost_.insert(peer);
  auto node = peers_.extract(peer);
  if (node.empty()) return;
  PeerLink& p = node.mapped();
  std::vector<WireOp*> ops(p.queue.begin(), p.queue.end());
  if (p.records) p.records->abandon(ops);
  for (const auto& comm : p.payloads) comm->abandon(ops);
  std::vector<Landing> landings;
  for (const auto& list : p.arriving)
    for (const Arriving& a : list) landings.push_back(a.landing);
  // Closing ends what is under way.
  p.records.reset();
  p.payloads.clear();
  close_inlets(p);
  std::sort(ops.begin(), ops.end());
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
  std::erase_if(done_, [&](const WireOp* op) { return op->peer == peer && (ops.push_back(const_cast<WireOp*>(op)), true); });
  for (const Landing& l : landings) lost(l);
  for (WireOp* op : ops) finished(*op);
}

}  // namespace muster
