#include "transports/net_plugin/meeting_point.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/text.h"

namespace muster::net_plugin {
namespace {

using MeetingClock = std::chrono::steady_clock;

constexpr uint64_t kQuestionMagic = 0x716574656e73756d, kAnswerMagic = 0x616574656e73756d;
constexpr size_t kMostGuests = 256;
constexpr size_t kMostAnswer = 4096;
constexpr std::chrono::seconds kGuestTime{5};
constexpr size_t kMostAddresses = 16;

struct WireQuestion {
  uint64_t magic = kQuestionMagic;
  Question question;
};
static_assert(sizeof(WireQuestion) == 32);
struct WireAnswer {
  uint64_t magic = kAnswerMagic;
  uint64_t secret = 0;
  uint64_t bytes = 0;  // that follow
};

std::string text_of(const sockaddr_storage& a) {
  char out[INET6_ADDRSTRLEN] = "?";
  if (a.ss_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(a).sin_addr, out, sizeof out);
  else
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(a).sin6_addr, out, sizeof out);
  return out;
}

sockaddr_storage to_sockaddr(const std::string& text, uint16_t port, socklen_t* length) {
  sockaddr_storage r{};
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  *length = 0;
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&r, &v4, *length = sizeof v4);
  } else if (inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&r, &v6, *length = sizeof v6);
  }
  return r;
}

// Those of interfaces that are up; loopback last, for ranks of one machine that count as several hosts. Link-local ones mean
// nothing elsewhere.
std::vector<std::string> host_addresses(const std::vector<std::string>& interfaces) {
  std::vector<std::string> real, loopback;
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) fail_errno(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(head, freeifaddrs);
  for (const ifaddrs* i = head; i; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || !(i->ifa_flags & IFF_RUNNING)) continue;
    if (!interfaces.empty() && std::find(interfaces.begin(), interfaces.end(), i->ifa_name) == interfaces.end()) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage a{};
    std::memcpy(&a, i->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr)) continue;
    (i->ifa_flags & IFF_LOOPBACK ? loopback : real).push_back(text_of(a));
  }
  real.insert(real.end(), loopback.begin(), loopback.end());
  if (real.size() > kMostAddresses) real.resize(kMostAddresses);
  return real;
}

Fd listen_at(int family, uint16_t port, int* error) {
  Fd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int off = 0, on = 1;
  sockaddr_storage a{};
  a.ss_family = static_cast<sa_family_t>(family);
  (family == AF_INET ? reinterpret_cast<sockaddr_in&>(a).sin_port : reinterpret_cast<sockaddr_in6&>(a).sin6_port) = htons(port);
  if (fd && family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (fd) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (fd && bind(fd.get(), reinterpret_cast<sockaddr*>(&a), length) == 0 && listen(fd.get(), SOMAXCONN) == 0) return fd;
  *error = errno;
  return Fd();
}

// 0: that was all for now; -1: it ended.
ssize_t read_some(int fd, std::string& in, size_t most) {
  char buffer[1024];
  const ssize_t n = recv(fd, buffer, std::min(sizeof buffer, most), 0);
  if (n > 0) in.append(buffer, static_cast<size_t>(n));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  return n == 0 ? -1 : n;
}

template <class T>
std::string raw(const T& v) {
  return {reinterpret_cast<const char*>(&v), sizeof v};
}

}  // namespace

MeetingPoint::MeetingPoint(const std::string& port_range, std::vector<std::string> interfaces) : interfaces_(std::move(interfaces)) {
  unsigned low = 0, high = 0;
  if (const size_t dash = port_range.find('-'); dash != port_range.npos) {
    std::from_chars(port_range.data(), port_range.data() + dash, low);
    std::from_chars(port_range.data() + dash + 1, port_range.data() + port_range.size(), high);
  }
  int error = 0;
  for (unsigned port = low; port <= std::min(high, 65535u) && !listener_; ++port)
    for (const int family : {AF_INET6, AF_INET})
      if (!listener_) listener_ = listen_at(family, static_cast<uint16_t>(port), &error);
  if (!listener_)
    fail_errno(error, port_range.empty() ? "no TCP port to listen at" : "no port of MUSTER_PORT_RANGE=" + port_range + " to listen at",
               "With a network plugin every process listens at two ports: widen the range");
  sockaddr_storage a{};
  socklen_t length = sizeof a;
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&a), &length);
  port_ = ntohs(a.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(a).sin_port : reinterpret_cast<sockaddr_in6&>(a).sin6_port);
}

std::string MeetingPoint::address() const {
  std::string r = std::to_string(port_);
  for (const std::string& a : host_addresses(interfaces_)) r += " " + a;
  return r;
}

bool MeetingPoint::serve(const std::function<std::string(const Question&)>& answer) {
  bool moved = false;
  for (;;) {
    const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) break;
    if (guests_.size() == kMostGuests) guests_.pop_front();  // the oldest has had the most time
    guests_.push_back({Fd(fd), {}, {}, MeetingClock::now() + kGuestTime});
    moved = true;
  }
  guests_.remove_if([&](Guest& g) { return !advance(g, answer); });
  return moved;
}

bool MeetingPoint::advance(Guest& g, const std::function<std::string(const Question&)>& answer) {
  while (g.out.empty() && g.in.size() < sizeof(WireQuestion)) {
    const ssize_t n = read_some(g.fd.get(), g.in, sizeof(WireQuestion) - g.in.size());
    if (n < 0 || MeetingClock::now() > g.until) return false;
    if (n == 0) return true;
  }
  if (g.out.empty()) {
    WireQuestion q;
    std::memcpy(&q, g.in.data(), sizeof q);
    if (q.magic != kQuestionMagic || (g.out = answer(q.question)).empty()) return false;
  }
  const ssize_t n = send(g.fd.get(), g.out.data(), g.out.size(), MSG_NOSIGNAL);
  if (n < 0) return (errno == EAGAIN || errno == EINTR) && MeetingClock::now() < g.until;
  g.out.erase(0, static_cast<size_t>(n));
  return !g.out.empty();
}

// --- asking ---

Asking::Asking(const std::string& address, const Question& question, uint64_t answer_secret)
    : question_(question), answer_secret_(answer_secret) {
  const auto words = split(address, ' ');
  const auto port = parse_c_integer(words[0]);
  for (size_t i = 1; port && *port > 0 && *port < 65536 && i < words.size() && i <= kMostAddresses; ++i) {
    Attempt a;
    a.where = fmt::format("{} port {}", words[i], *port);
    socklen_t length = 0;
    const sockaddr_storage to = to_sockaddr(std::string(words[i]), static_cast<uint16_t>(*port), &length);
    if (length == 0) continue;
    a.fd = Fd(socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!a.fd || (connect(a.fd.get(), reinterpret_cast<const sockaddr*>(&to), length) != 0 && errno != EINPROGRESS)) {
      a.problem = "connect: " + describe_connect_error(errno);
      a.fd.reset();
    }
    attempts_.push_back(std::move(a));
  }
  if (attempts_.empty()) fail(Result::remote_error, "it didn't say where it can be asked for its plugin's handles: '{}'", printable(address, 200));
}

std::string Asking::advance() {
  std::string answer;
  bool any = false;
  for (Attempt& a : attempts_) {
    if (!a.fd) continue;
    advance(a);
    if (a.fd && a.sent && read_answer(a, &answer)) return answer;
    any = any || a.fd;
  }
  if (any) return {};
  std::string said;
  for (const Attempt& a : attempts_) said += fmt::format("{}{}: {}", said.empty() ? "" : "; ", a.where, a.problem);
  fail(Result::remote_error,
       "it can't be asked for its network plugin's handles: {}. Open the hosts' firewalls to each other, for the ports of MUSTER_PORT_RANGE at least",
       said);
}

void Asking::advance(Attempt& a) {
  if (a.sent) return;
  pollfd p{a.fd.get(), POLLOUT, 0};
  if (!a.connected) {
    if (::poll(&p, 1, 0) <= 0) return;
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(a.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) {
      a.problem = "connect: " + describe_connect_error(error);
      a.fd.reset();
      return;
    }
    a.connected = true;
  }
  const std::string text = raw(WireQuestion{kQuestionMagic, question_});  // into an empty buffer: it fits
  if (send(a.fd.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size())) {
    a.sent = true;
  } else {
    a.problem = "send: " + describe_errno(errno);
    a.fd.reset();
  }
}

bool Asking::read_answer(Attempt& a, std::string* answer) {
  WireAnswer head;
  for (size_t wanted = sizeof head;;) {
    if (a.in.size() >= sizeof head) {
      std::memcpy(&head, a.in.data(), sizeof head);
      if (head.magic != kAnswerMagic || head.secret != answer_secret_ || head.bytes == 0 || head.bytes > kMostAnswer) {
        a.problem = "who answers there is another process";
        a.fd.reset();
        return false;
      }
      wanted = sizeof head + head.bytes;
    }
    if (a.in.size() == wanted) break;
    const ssize_t n = read_some(a.fd.get(), a.in, wanted - a.in.size());
    if (n == 0) return false;
    if (n < 0) {
      a.problem = "it closed the connection (another process, or a rank that has given this one up)";
      a.fd.reset();
      return false;
    }
  }
  *answer = a.in.substr(sizeof head);
  return true;
}

std::string answer_with(uint64_t secret, const std::string& text) { return raw(WireAnswer{kAnswerMagic, secret, text.size()}) + text; }

}  // namespace muster::net_plugin
