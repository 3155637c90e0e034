#include "transports/tcp/dialing.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>

#include "base/error.h"

namespace muster::tcp {
namespace {

constexpr std::chrono::seconds kDeviceAlone{1};

// False: not all of it yet, or `problem` says why it never will be.
template <class T>
bool hear(int fd, T* out, size_t* heard, std::string* problem) {
  const ssize_t n = recv(fd, reinterpret_cast<char*>(out) + *heard, sizeof *out - *heard, 0);
  if (n > 0) return (*heard += static_cast<size_t>(n)) == sizeof *out;
  if (n == 0)
    *problem = "it closed the connection before it had answered";
  else if (errno != EAGAIN && errno != EINTR)
    *problem = describe_errno(errno);
  return false;
}

}  // namespace

Dialing::Dialing(const Rail& to, const Rail* source, uint32_t from, uint16_t number, uint16_t streams, const PairKey& key, const Settings& settings,
                 int epoll)
    : source_(source), from_(from), number_(number), streams_(streams), key_(key), settings_(settings), epoll_(epoll) {
  for (const Place& p : to) {
    attempts_.push_back({.place = p});
    begin(attempts_.back(), true);
  }
}

void Dialing::begin(Attempt& a, bool by_device) {
  a.problem.clear();
  a.device.clear();
  a.begun = std::chrono::steady_clock::now();
  a.fd = Fd(socket(a.place.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!a.fd) {
    a.problem = "socket: " + describe_errno(errno);
    return;
  }
  size_buffers(a.fd.get(), settings_);
  tune(a.fd.get(), settings_);
  if (source_)
    for (Place s : *source_)
      if (s.family() == a.place.family()) {
        if (by_device && !s.device.empty() && bind_to_device(a.fd.get(), s.device)) a.device = s.device;
        const int on = 1;
        setsockopt(a.fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        s.set_port(0);
        [[maybe_unused]] const int wish = bind(a.fd.get(), reinterpret_cast<const sockaddr*>(&s.address), s.length);
        break;
      }
  if (connect(a.fd.get(), reinterpret_cast<const sockaddr*>(&a.place.address), a.place.length) != 0 && errno != EINPROGRESS) {
    a.problem = "connect: " + describe_connect_error(errno);
    a.fd.reset();
    if (!a.device.empty()) begin(a, false);
    return;
  }
  watch(epoll_, a.fd.get(), EPOLLIN | EPOLLOUT, nullptr);
}

void Dialing::advance(Attempt& a) {
  if (!a.connected) {
    pollfd p{a.fd.get(), POLLOUT, 0};
    if (::poll(&p, 1, 0) <= 0) return;
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(a.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      a.problem = "connect: " + describe_connect_error(error);
      return;
    }
    a.connected = true;
    rewatch(epoll_, a.fd.get(), EPOLLIN, nullptr);
  }
  if (!hear(a.fd.get(), &a.challenge, &a.heard, &a.problem)) return;
  if (!is_challenge(a.challenge)) {
    a.problem = "another program answers there";
    return;
  }
  introduced_ = true;
  hello_ = make_hello(key_, a.challenge, from_, number_, streams_);
  if (send(a.fd.get(), &hello_, sizeof hello_, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello_)) {  // into an empty buffer
    a.problem = "send: " + describe_errno(errno);
    return;
  }
  chosen_ = static_cast<int>(&a - attempts_.data());
  heard_ = 0;
}

Dialing::State Dialing::await_answer(Attempt& a) {
  if (!hear(a.fd.get(), &answer_, &heard_, &a.problem)) {
    if (a.problem.empty()) return State::waiting;
  } else if (!is_proved(key_, a.challenge, hello_, answer_)) {
    a.problem = "another process answers there";
  } else if (answer_.verdict == Verdict::crossed) {
    return State::crossed;
  } else if (answer_.verdict == Verdict::lost) {
    a.problem = "it has given up this rank";
  } else {
    epoll_ctl(epoll_, EPOLL_CTL_DEL, a.fd.get(), nullptr);
    return State::connected;
  }
  a.fd.reset();
  chosen_ = -1;
  return State::waiting;
}

Dialing::State Dialing::advance() {
  for (Attempt& a : attempts_) {
    if (chosen_ >= 0) break;
    if (!a.fd) continue;
    advance(a);
    if (!a.problem.empty()) a.fd.reset();
    const bool in_vain = !a.fd || (!a.connected && std::chrono::steady_clock::now() - a.begun > kDeviceAlone);
    if (in_vain && !a.device.empty()) begin(a, false);
  }
  if (chosen_ >= 0)
    if (const State s = await_answer(attempts_[static_cast<size_t>(chosen_)]); s != State::waiting) return s;
  for (const Attempt& a : attempts_)
    if (a.fd) return State::waiting;
  return State::failed;
}

std::string Dialing::problem() const {
  std::string said;
  for (const Attempt& a : attempts_) said += fmt::format("{}{}: {}", said.empty() ? "" : "; ", a.place.text(), a.problem);
  return said;
}

}  // namespace muster::tcp
