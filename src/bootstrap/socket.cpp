#include "bootstrap/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace muster {
namespace {

template <class T>
void set(int fd, int level, int name, T value) {
  setsockopt(fd, level, name, &value, sizeof value);  // all uses are wishes
}

// The chosen address is what the peer sees and answers to. The way out stays the kernel's: a socket pinned to
// a device hears no answer that the peer's routes bring in by another one.
void use_source(int fd, const Source& source, const Address& target) {
  const Address& from = source.address;
  if (from.family() != target.family() || from.kind == Address::Kind::local) return;
  if (from.only_here() != target.only_here()) return;
  set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  socklen_t length = 0;
  const sockaddr_storage a = from.to_sockaddr(&length);
  [[maybe_unused]] const int wish = bind(fd, reinterpret_cast<const sockaddr*>(&a), length);
}

}  // namespace

ProcessFd make_socket(int family, SocketError& error) {
  ProcessFd s(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!s) error = {errno, "socket"};
  return s;
}

ProcessFd listen_at(const Address& at, SocketError& error) {
  ProcessFd s = make_socket(at.family(), error);
  if (!s) return s;
  if (at.kind != Address::Kind::local) set(s.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (at.kind == Address::Kind::ipv6) set(s.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  socklen_t length = 0;
  const sockaddr_storage a = at.to_sockaddr(&length);
  if (bind(s.get(), reinterpret_cast<const sockaddr*>(&a), length) != 0)
    error = {errno, "bind"};
  else if (listen(s.get(), SOMAXCONN) != 0)
    error = {errno, "listen"};
  else
    return s;
  return ProcessFd();
}

Address local_address(int fd) {
  sockaddr_storage a{};
  socklen_t length = sizeof a;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&a), &length) != 0) return {};
  return Address::from_sockaddr(reinterpret_cast<const sockaddr*>(&a));
}

Address remote_address(int fd) {
  sockaddr_storage a{};
  socklen_t length = sizeof a;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&a), &length) != 0) return {};
  return Address::from_sockaddr(reinterpret_cast<const sockaddr*>(&a));
}

void tune_stream(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);  // a host that vanishes is noticed within about half a minute
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd p{fd, events, 0};
    const int n = poll(&p, 1, deadline.poll_ms());
    if (n > 0) return true;
    if (n == 0 && deadline.expired()) return false;
  }
}

Address address_toward(const Address& target) {
  if (target.kind == Address::Kind::none || target.only_here()) return {};
  const ProcessFd fd(socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  socklen_t length = 0;
  const sockaddr_storage to = target.to_sockaddr(&length);
  if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), length) != 0) return {};
  return local_address(fd.get());
}

void limit_silence(int fd, std::chrono::milliseconds most) {
  const auto seconds = [](std::chrono::milliseconds t) {
    return std::max(1, static_cast<int>(std::chrono::floor<std::chrono::seconds>(t).count()));
  };
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds(most / 3));
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds(most / 6));
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<unsigned>(most.count()));
}

ProcessFd begin_connect(const Address& target, const Source& source, SocketError& error) {
  ProcessFd s = make_socket(target.family(), error);
  if (!s) return s;
  use_source(s.get(), source, target);
  socklen_t length = 0;
  const sockaddr_storage a = target.to_sockaddr(&length);
  if (connect(s.get(), reinterpret_cast<const sockaddr*>(&a), length) != 0 && errno != EINPROGRESS && errno != EINTR) {
    error = {errno, "connect"};
    return ProcessFd();
  }
  return s;
}

int end_connect(int fd, const Address& target) {
  int e = 0;
  socklen_t size = sizeof e;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &size) != 0) e = errno;
  // A port of this host that nobody listens at can be given to the very socket that connects to it.
  if (e == 0 && target.kind != Address::Kind::local && local_address(fd) == remote_address(fd)) e = ECONNREFUSED;
  if (e == 0) tune_stream(fd);
  return e;
}

ProcessFd connect_to(const Address& target, const Source& source, Deadline deadline, SocketError& error) {
  ProcessFd s = begin_connect(target, source, error);
  if (!s) return s;
  const int e = wait_for(s.get(), POLLOUT, deadline) ? end_connect(s.get(), target) : ETIMEDOUT;
  if (e == 0) return s;
  error = {e, "connect"};
  return ProcessFd();
}

IoStatus send_all(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0)
      bytes.remove_prefix(static_cast<size_t>(n));
    else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLOUT, deadline)) return IoStatus::expired;
    } else if (errno == EPIPE || errno == ECONNRESET)
      return IoStatus::closed;
    else if (errno != EINTR)
      return IoStatus::failed;
  }
  return IoStatus::done;
}

IoStatus recv_all(int fd, void* out, size_t bytes, Deadline deadline) {
  auto* p = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t n = recv(fd, p, bytes, 0);
    if (n > 0) {
      p += n;
      bytes -= static_cast<size_t>(n);
    } else if (n == 0 || errno == ECONNRESET)
      return IoStatus::closed;
    else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLIN, deadline)) return IoStatus::expired;
    } else if (errno != EINTR)
      return IoStatus::failed;
  }
  return IoStatus::done;
}

std::string frame(std::string_view message) { return Writer().text(message).take(); }

IoStatus recv_frame(int fd, std::string& out, Deadline deadline) {
  char head[4];
  if (const IoStatus s = recv_all(fd, head, sizeof head, deadline); s != IoStatus::done) return s;
  const uint32_t size = Reader({head, sizeof head}).u32();
  if (size > kSmallFrame) {
    errno = EBADMSG;
    return IoStatus::failed;
  }
  out.resize(size);
  return recv_all(fd, out.data(), size, deadline);
}

}  // namespace muster
