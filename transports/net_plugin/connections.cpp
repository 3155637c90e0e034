#include "transports/net_plugin/connections.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace muster::net_plugin {

namespace {

constexpr size_t kCopies = 4;  // payloads from users' memory, of a connection at a time

// Users' memory that a plugin knows, for one connection.
struct Registered {
  const Plugin& plugin;
  void* const comm;
  void* const handle;
  ~Registered() { plugin.deregister(comm, handle); }
};

}  // namespace

// --- memory ---

PluginMemory::PluginMemory(const Plugin& plugin, void* comm, size_t bytes)
    : plugin_(&plugin), comm_(comm), data_(new std::byte[bytes]), size_(bytes), handle_(plugin.register_memory(comm, data_.get(), bytes)) {}

PluginMemory::~PluginMemory() {
  if (data_) plugin_->deregister(comm_, handle_);
}

PluginMemory& PluginMemory::operator=(PluginMemory&& o) noexcept {
  std::swap(plugin_, o.plugin_);
  std::swap(comm_, o.comm_);
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  std::swap(handle_, o.handle_);
  return *this;
}

void* KnownRings::handle_of(const Plugin& plugin, void* comm, std::span<std::byte> ring, Plugin::Kind kind) {
  for (const Known& k : known_)
    if (k.ring.data() == ring.data()) return k.handle;
  plugin_ = &plugin;
  comm_ = comm;
  known_.push_back({ring, plugin.register_memory(comm, ring.data(), ring.size(), kind)});
  return known_.back().handle;
}

void KnownRings::clear() noexcept {
  for (const Known& k : known_) plugin_->deregister(comm_, k.handle);
  known_.clear();
}

void KnownRings::forget(const std::byte* ring) noexcept {
  std::erase_if(known_, [&](const Known& k) {
    if (k.ring.data() != ring) return false;
    plugin_->deregister(comm_, k.handle);
    return true;
  });
}

// --- out ---

SendComm::~SendComm() {
  if (!comm_) return;
  waiting_.clear();
  flying_.clear();
  lasting_.reset();
  rings_.clear();
  copies_.clear();
  records_ = {};
  plugin_.close_send(comm_);
}

bool SendComm::connect() {
  if (comm_) return true;
  comm_ = plugin_.connect(context_, device_, handle_);
  if (!comm_) return false;
  // Whatever the plugin drives, it may read pages that a fork has taken.
  Registrations::Limits limits = Registrations::Limits::of_machine();
  limits.only_shared = !Registrations::fork_is_harmless();
  lasting_.emplace(
      [this](std::span<const std::byte> memory) {
        void* const handle = plugin_.register_memory(comm_, const_cast<std::byte*>(memory.data()), memory.size());
        return std::shared_ptr<const void>(new Registered{plugin_, comm_, handle});
      },
      limits);
  return true;
}

void SendComm::send_record(std::span<const std::byte> head, std::span<const std::byte> rest, const std::shared_ptr<Outgoing>& of) {
  if (!records_.data()) records_ = PluginMemory(plugin_, comm_, kUnderWay * kRecord);
  std::byte* const at = records_.data() + record_++ % kUnderWay * kRecord;
  std::memcpy(at, head.data(), head.size());
  if (!rest.empty()) std::memcpy(at + head.size(), rest.data(), rest.size());
  ++of->parts;
  waiting_.push_back({{at, head.size() + rest.size()}, records_.handle(), 0, {}, {}, of, nullptr});
}

void SendComm::send_payload(std::span<const std::byte> payload, std::span<std::byte> ring, Plugin::Kind kind, size_t slot_bytes,
                            const std::shared_ptr<Outgoing>& of) {
  ++of->parts;
  if (!ring.empty()) {
    waiting_.push_back({payload, rings_.handle_of(plugin_, comm_, ring, kind), 0, {}, {}, of, nullptr});
  } else if (auto known = lasting_->find(payload.data(), payload.size())) {
    void* const handle = static_cast<const Registered*>(known.get())->handle;
    waiting_.push_back({payload, handle, 0, {}, std::move(known), of, nullptr});
  } else {
    waiting_.push_back({payload, nullptr, std::max(slot_bytes, payload.size()), {}, {}, of, nullptr});
  }
}

// Other memory of users may be freed and come back as something else between two calls, so it isn't made known to the plugin.
bool SendComm::stage(Part& p) {
  size_t c = 0;
  while (c < copies_.size() && copies_[c].used) ++c;
  if (c == kCopies) return false;
  if (c == copies_.size()) copies_.emplace_back();
  Copy& copy = copies_[c];
  if (copy.memory.size() < p.from.size()) copy.memory = PluginMemory(plugin_, comm_, p.room);
  std::memcpy(copy.memory.data(), p.from.data(), p.from.size());
  copy.used = true;
  p.from = {copy.memory.data(), p.from.size()};
  p.memory = copy.memory.handle();
  p.copy = c;
  return true;
}

bool SendComm::advance(std::vector<WireOp*>& done) {
  bool moved = false;
  lasting_->sweep();
  while (!waiting_.empty() && flying_.size() < kUnderWay) {
    Part& p = waiting_.front();
    if (p.room && !p.copy && !stage(p)) break;
    p.request = plugin_.send(comm_, p.from.data(), p.from.size(), p.memory);
    if (!p.request) break;
    flying_.push_back(std::move(p));
    waiting_.pop_front();
    moved = true;
  }
  // In order: a plugin finishes them so, or nearly.
  while (!flying_.empty() && plugin_.test(flying_.front().request, nullptr)) {
    Part& p = flying_.front();
    if (p.copy) copies_[*p.copy].used = false;
    if (--p.of->parts == 0 && p.of->op) done.push_back(p.of->op);
    flying_.pop_front();
    moved = true;
  }
  return moved;
}

void SendComm::abandon(std::vector<WireOp*>& ops) const {
  for (const auto* parts : {&waiting_, &flying_})
    for (const Part& p : *parts)
      if (p.of->op) ops.push_back(p.of->op);
}

// --- in ---

ReceiveComm::~ReceiveComm() {
  rings_.clear();
  awaited_.clear();
  records_ = {};
  plugin_.close_receive(comm_);
}

std::span<const std::byte> ReceiveComm::next_record(size_t records) {
  if (records_.size() < records * kRecord && posted_ == taken_) {
    records_ = PluginMemory(plugin_, comm_, records * kRecord);
    requests_.assign(records, nullptr);
  }
  const size_t n = requests_.size();
  try {
    for (; posted_ < taken_ + n; ++posted_) {
      void* const request = plugin_.receive(comm_, records_.data() + posted_ % n * kRecord, kRecord, records_.handle());
      if (!request) break;
      requests_[posted_ % n] = request;
    }
  } catch (const Error&) {
    if (posted_ == taken_) throw;  // else what has come before the end is looked at first
  }
  size_t bytes = 0;
  if (taken_ == posted_ || !plugin_.test(requests_[taken_ % n], &bytes)) return {};
  return {records_.data() + taken_++ % n * kRecord, bytes};
}

void ReceiveComm::expect(std::span<std::byte> to, std::span<std::byte> ring, size_t bytes) {
  Awaited a{to.data(), bytes, nullptr, {}, nullptr};
  if (ring.empty()) {
    a.dropped = PluginMemory(plugin_, comm_, bytes);
    a.to = a.dropped.data();
    a.memory = a.dropped.handle();
  } else {
    a.memory = rings_.handle_of(plugin_, comm_, ring);
  }
  awaited_.push_back(std::move(a));
}

std::optional<size_t> ReceiveComm::next_payload() {
  size_t posted = 0;
  for (Awaited& a : awaited_) {
    if (posted++ == kUnderWay) break;
    if (!a.request && !(a.request = plugin_.receive(comm_, a.to, a.bytes, a.memory))) break;
  }
  size_t bytes = 0;
  if (awaited_.empty() || !awaited_.front().request || !plugin_.test(awaited_.front().request, &bytes)) return std::nullopt;
  awaited_.pop_front();
  return bytes;
}

}  // namespace muster::net_plugin
