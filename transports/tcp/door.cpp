#include "transports/tcp/door.h"

#include <netinet/in.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace muster::tcp {
namespace {

constexpr size_t kMostStrangers = 256;  // at a time, beside those who may come

}  // namespace

void watch(int epoll, int fd, uint32_t events, void* who) {
  epoll_event e{};
  e.events = events;
  e.data.ptr = who;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) != 0) fail_errno(errno, "watching a connection (epoll_ctl)");
}

void rewatch(int epoll, int fd, uint32_t events, void* who) {
  epoll_event e{};
  e.events = events;
  e.data.ptr = who;
  epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &e);
}

// --- door ---

Door::Door(const std::vector<std::string>& interfaces, const Settings& settings, size_t ranks, int epoll)
    : settings_(settings),
      most_guests_(kMostStrangers + ranks * static_cast<size_t>(settings.streams)),
      epoll_(epoll),
      rails_(usable_rails(interfaces, settings.family)) {
  for (Rail& rail : rails_) std::erase_if(rail, [this](Place& p) { return !listen(&p); });
  std::erase_if(rails_, [](const Rail& r) { return r.empty(); });
  if (!rails_.empty()) return;
  const std::string where = interfaces.empty() ? "this host" : fmt::format("{}", fmt::join(interfaces, ", "));
  if (error_ == 0)
    fail(Result::system_error, "{} has no address that is up and that others could connect to. Check NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY; `ip addr` lists what there is",
         where);
  fail_errno(error_, fmt::format("no TCP port of {} to listen at{}", where, settings.high_port ? fmt::format(" in MUSTER_PORT_RANGE={}-{}", settings.low_port, settings.high_port) : ""),
             "With TCP every process listens at a port for meeting and one for each address it is reached at: widen the range");
}

bool Door::listen(Place* place) {
  for (int port = settings_.low_port; port <= settings_.high_port; ++port) {
    Fd fd(socket(place->family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (fd && place->family() == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (fd) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd) size_buffers(fd.get(), settings_);  // those who come inherit them
    place->set_port(port);
    if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr*>(&place->address), place->length) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
      error_ = errno;
      continue;
    }
    Place got = *place;
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&got.address), &got.length);
    place->set_port(got.port());
    watch(epoll_, fd.get(), EPOLLIN, nullptr);
    if (!place->device.empty()) listen_by_device(fd.get(), *place);
    listeners_.push_back(std::move(fd));
    return true;
  }
  return false;
}

// Who comes by the address's own interface is answered by it, though a route may name another one. That takes a listener beside the
// one for all others, at the same port, which no other process may share.
void Door::listen_by_device(int all, const Place& place) {
  Fd fd(socket(place.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd || !bind_to_device(fd.get(), place.device)) return;
  const auto share = [&](int on) {
    for (const int f : {all, fd.get()}) setsockopt(f, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  };
  const int on = 1;
  if (place.family() == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  size_buffers(fd.get(), settings_);
  share(1);
  const bool listens = bind(fd.get(), reinterpret_cast<const sockaddr*>(&place.address), place.length) == 0 && ::listen(fd.get(), SOMAXCONN) == 0;
  share(0);
  if (!listens) return;
  watch(epoll_, fd.get(), EPOLLIN, nullptr);
  listeners_.push_back(std::move(fd));
}

bool Door::serve(const Host& host) {
  bool moved = false;
  for (const Fd& listener : listeners_)
    for (;;) {
      Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd) break;
      moved = true;
      const Challenge challenge = make_challenge();
      // A new connection has room for it.
      if (send(fd.get(), &challenge, sizeof challenge, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof challenge)) continue;
      if (guests_.size() == most_guests_) guests_.pop_front();
      watch(epoll_, fd.get(), EPOLLIN, nullptr);
      guests_.push_back({std::move(fd), challenge});
    }
  const size_t guests = guests_.size();
  guests_.remove_if([&](Guest& g) { return !advance(g, host); });
  return moved || guests_.size() != guests;
}

bool Door::advance(Guest& g, const Host& host) {
  // No more than the hello: what follows is the connection's.
  const ssize_t n = recv(g.fd.get(), reinterpret_cast<char*>(&g.hello) + g.heard, sizeof g.hello - g.heard, 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  g.heard += static_cast<size_t>(n);
  if (g.heard < sizeof g.hello) return true;
  const auto key = host.key_of(g.hello.from);
  if (!key || !is_proved(*key, g.challenge, g.hello)) {
    host.stranger();
    return false;
  }
  const Verdict verdict = host.judge(g.hello);
  const Answer answer = make_answer(*key, g.challenge, g.hello, verdict);
  if (send(g.fd.get(), &answer, sizeof answer, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof answer)) return false;
  if (verdict != Verdict::welcome) return false;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, g.fd.get(), nullptr);
  tune(g.fd.get(), settings_);
  host.enter(g.hello, std::move(g.fd));
  return false;
}

}  // namespace muster::tcp
