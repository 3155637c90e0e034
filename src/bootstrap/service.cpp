#include "bootstrap/service.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "bootstrap/channel.h"
#include "bootstrap/unique_id.h"

namespace muster {
namespace {

constexpr size_t kMaxGuests = 256;
constexpr size_t kMaxRetired = 4096;
constexpr std::chrono::seconds kGuestTime{5};
constexpr std::chrono::seconds kComplaints{10};

std::atomic<Service*> g_service{nullptr};
std::mutex g_start;

struct PortRange {
  uint16_t low = 0, high = 0;
};
PortRange parse_port_range(const std::string& text) {
  if (text.empty()) return {};
  unsigned low = 0, high = 0;
  const char* end = text.data() + text.size();
  auto a = std::from_chars(text.data(), end, low);
  const bool dash = a.ec == std::errc() && a.ptr != end && *a.ptr == '-';
  auto b = dash ? std::from_chars(a.ptr + 1, end, high) : a;
  if (!dash || b.ec != std::errc() || b.ptr != end || low < 1 || low > high || high > 65535)
    fail(Result::invalid_usage,
         "MUSTER_PORT_RANGE='{}' can't be read: LOW-HIGH is wanted, with 1 <= LOW <= HIGH <= 65535", text);
  return {static_cast<uint16_t>(low), static_cast<uint16_t>(high)};
}

ProcessFd listen_in_range(Address at, PortRange range, SocketError& error) {
  for (uint32_t port = range.low; port <= range.high; ++port) {
    at.port = static_cast<uint16_t>(port);
    error = {};
    if (ProcessFd fd = listen_at(at, error)) return fd;
    if (error.error == EADDRNOTAVAIL) break;  // the address, not the port
  }
  return ProcessFd();
}

}  // namespace

Service* Service::existing() { return g_service.load(std::memory_order_acquire); }

Service& Service::get() {
  refuse_in_forked_child();  // first: the mutex may have been held when the process forked
  if (Service* s = existing()) return *s;
  const std::lock_guard lock(g_start);
  if (Service* s = existing()) return *s;
  g_service.store(new Service, std::memory_order_release);  // never deleted: its thread has no end
  return *existing();
}

Service::Listener& Service::add_listener(ProcessFd fd, const Source& source, const Address& address) {
  auto owner = std::make_unique<Listener>();
  Listener* l = owner.get();
  l->fd = std::move(fd);
  l->source = source;
  l->address = address;
  l->watch = loop_.watch(l->fd.get(), EPOLLIN, [this, l] { on_connection(*l); });
  return *owner.release();
}

Service::Listening Service::listen(std::span<const Source> sources, const std::string& range_text) {
  const PortRange range = parse_port_range(range_text);
  Listening result;
  loop_.call([&] {
    std::string tried;
    for (const Source& source : sources) {
      const auto key = std::pair(source.address, range_text);
      if (const auto known = listeners_.find(key); known != listeners_.end()) {
        result = {known->second->address, source};
        return;
      }
      Address at = source.address;
      if (at.kind == Address::Kind::local) at = Address::local(random_value<PublicId>());
      SocketError error;
      if (ProcessFd fd = listen_in_range(at, range, error)) {
        if (at.kind != Address::Kind::local) at.port = local_address(fd.get()).port;
        log_debug(Topic::bootstrap, "listening at {} ({})", at.text(), source.interface);
        listeners_[key].reset(&add_listener(std::move(fd), source, at));
        result = {at, source};
        return;
      }
      tried += fmt::format("{}{} ({}): {}: {}", tried.empty() ? "" : "; ", source.address.host_text(),
                           source.interface, error.call, describe_errno(error.error));
    }
    fail(Result::system_error, "no port to listen at: {}{}. {}", tried,
         range_text.empty() ? "" : fmt::format("; each port of MUSTER_PORT_RANGE={} was refused", range_text),
         range_text.empty()
             ? "Ports are taken from net.ipv4.ip_local_port_range: widen it, or set MUSTER_PORT_RANGE"
             : "Every process needs one port: widen the range, or free ports in it");
  });
  return result;
}

Address Service::listen_local() {
  const Source source{Address::local({}), ""};
  return listen({&source, 1}, "").address;
}

void Service::listen_fixed(const Address& at, SocketError& error) {
  ProcessFd fd = listen_at(at, error);
  if (fd) fixed_[at].reset(&add_listener(std::move(fd), {}, at));
}

void Service::close_fixed(const Address& at) {
  const auto l = fixed_.find(at);
  if (l == fixed_.end()) return;
  loop_.unwatch(l->second->watch);
  fixed_.erase(l);
}

void Service::open(const EndpointName& name, const Key& key, Accept accept) {
  endpoints_[name] = {key, std::move(accept)};
}
void Service::close(const EndpointName& name) { endpoints_.erase(name); }

void Service::retire(const EndpointName& name, const Key& key, std::string message) {
  endpoints_.erase(name);
  if (retired_.insert_or_assign(name, Retired{key, std::move(message)}).second)
    retired_order_.push_back(name);
  if (retired_order_.size() > kMaxRetired) {
    retired_.erase(retired_order_.front());
    retired_order_.pop_front();
  }
}

const Key* Service::key_of(const EndpointName& name) const {
  if (const auto e = endpoints_.find(name); e != endpoints_.end()) return &e->second.key;
  if (const auto r = retired_.find(name); r != retired_.end()) return &r->second.key;
  return nullptr;
}

void Service::on_connection(Listener& listener) {
  for (int burst = 0; burst < 64; ++burst) {
    const int fd = accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // Who waits in the queue stays there; without a pause this thread would spin on it.
        refusal_error_.store(errno, std::memory_order_relaxed);
        refusals_.fetch_add(1, std::memory_order_relaxed);
        if (may_complain())
          log_warn("can't accept a connection: {}. Raise the limit of open files (ulimit -n)",
                   describe_errno(errno));
        const EventLoop::Handle watch = listener.watch;
        loop_.change(watch, 0);
        loop_.at(EventLoop::Clock::now() + std::chrono::milliseconds(100),
                 [this, watch] { loop_.change(watch, EPOLLIN); });
      }
      return;
    }
    refusals_.store(0, std::memory_order_relaxed);
    if (guests_.size() >= kMaxGuests) dismiss(guests_.begin());  // the oldest has had the most time
    const GuestAt g = guests_.emplace(guests_.end());
    g->fd = ProcessFd(fd);
    tune_stream(fd);
    g->timer = loop_.at(EventLoop::Clock::now() + kGuestTime, [this, g] { dismiss(g); });
    g->watch = loop_.watch(fd, EPOLLIN, [this, g] { on_guest(g); });
  }
}

void Service::require_accepting() const {
  constexpr int kSecond = 10;
  if (refusals_.load(std::memory_order_relaxed) < kSecond) return;
  fail(Result::system_error, "this process (pid {}) can't accept the connections of other ranks: {}. Raise the limit of open files (ulimit -n)",
       getpid(), describe_errno(refusal_error_.load(std::memory_order_relaxed)));
}

// Strangers decide how often they come; they must not fill the log.
bool Service::may_complain() {
  const auto now = EventLoop::Clock::now();
  if (last_complaint_ != EventLoop::Clock::time_point{} && now - last_complaint_ < kComplaints) return false;
  last_complaint_ = now;
  return true;
}

void Service::dismiss(GuestAt g) {
  loop_.unwatch(g->watch);
  loop_.cancel(g->timer);
  guests_.erase(g);
}

// Reads until `bytes` are in g.in. False when there aren't so many yet, or never will be: then g.fd is
// closed.
bool Service::read_guest(Guest& g, size_t bytes) {
  while (g.in.size() < bytes) {
    char buffer[kHelloBytes];
    const ssize_t n = recv(g.fd.get(), buffer, std::min(sizeof buffer, bytes - g.in.size()), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (n > 0) g.in.append(buffer, static_cast<size_t>(n));
    if (n <= 0 || (g.hello.empty() && !begins_as_hello(g.in))) {
      loop_.unwatch(std::exchange(g.watch, 0));
      g.fd.reset();
      return false;
    }
  }
  return true;
}

// False: the guest has been told why not.
bool Service::answer_hello(Guest& g) {
  g.hello = std::exchange(g.in, {});
  const ParsedHello p = parse_hello(g.hello);
  g.wanted = {p.hello.purpose, p.hello.id, p.hello.token};
  g.rank = p.hello.rank;
  const Key* key = key_of(g.wanted);
  const Status status = p.version != kProtocolVersion ? Status::other_version
                        : key                         ? Status::welcome
                                                      : Status::unknown;
  if (key) g.key = *key;
  g.reply = make_reply(status, g.key, g.hello);
  if (status == Status::other_version && may_complain())
    log_warn(
        "a process that speaks bootstrap protocol {} was turned away, this one speaks {}. Use the same "
        "Muster on all ranks",
        p.version, kProtocolVersion);
  // 80 bytes into an empty socket buffer: they fit or the connection is broken.
  const bool sent =
      send(g.fd.get(), g.reply.data(), g.reply.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(g.reply.size());
  return sent && status == Status::welcome;
}

void Service::on_guest(GuestAt g) {
  if (g->hello.empty()) {
    if (!read_guest(*g, kHelloBytes)) {
      if (!g->fd) dismiss(g);
      return;
    }
    if (!answer_hello(*g)) return dismiss(g);
  }
  if (!read_guest(*g, kProofBytes)) {
    if (!g->fd) dismiss(g);
    return;
  }
  if (!is_proof(g->key, g->hello, g->reply, g->in)) {
    if (may_complain())
      log_warn("a connection to this process was dropped: it failed to prove that it knows the key");
    return dismiss(g);
  }
  Arrival arrival{std::move(g->fd), g->rank, session_secret(g->key, g->hello, g->reply)};
  const EndpointName wanted = g->wanted;
  loop_.unwatch(std::exchange(g->watch, 0));
  dismiss(g);
  if (const auto e = endpoints_.find(wanted); e != endpoints_.end()) {
    const Accept accept = e->second.accept;  // it may close its own endpoint
    accept(std::move(arrival));
  } else if (const auto r = retired_.find(wanted); r != retired_.end()) {
    auto channel = std::make_unique<SecureChannel>(loop_, std::move(arrival.fd), SecureChannel::Events{});
    channel->send(r->second.message);
    SecureChannel::finish(std::move(channel));
  }
}

}  // namespace muster
