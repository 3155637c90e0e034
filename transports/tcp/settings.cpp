#include "transports/tcp/settings.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "base/error.h"
#include "base/fd.h"

namespace muster::tcp {
namespace {

template <class T>
void set_wish(int fd, int level, int name, T value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

int set_congestion(int fd, const std::string& name) {
  return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0 ? 0 : errno;
}

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// BBR learns a rate and sends at that, which suits streams that never end. Collectives are bursts with pauses, in which it
// learns the pauses: all-reduce between two hosts of 512 KiB 300 us with it and 143 without, 2 MiB 1260 and 810, and now and
// then for 200 ms, when it looks for the shortest way, 3 ms.
std::string congestion_of(const std::string& wish) {
  if (wish == "system") return {};
  const Fd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Fd probe6(probe ? -1 : socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int fd = probe ? probe.get() : probe6.get();
  if (wish == "auto") {
    char now[32] = {};
    socklen_t size = sizeof now - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, now, &size) != 0 || !std::string_view(now).starts_with("bbr")) return {};
    for (const char* name : {"cubic", "reno"})
      if (set_congestion(fd, name) == 0) return name;
    return {};
  }
  if (const int error = set_congestion(fd, wish); error != 0)
    fail(Result::invalid_usage, "MUSTER_TCP_CONGESTION={}: {}. This host has: {}; users other than root may choose of: {}. Or say auto or system", wish,
         describe_errno(error), first_line("/proc/sys/net/ipv4/tcp_available_congestion_control"),
         first_line("/proc/sys/net/ipv4/tcp_allowed_congestion_control"));
  return wish;
}

}  // namespace

Settings Settings::from(const Options& options) {
  const auto number = [&](const char* name, int64_t least, int64_t most) {
    const int64_t n = options.integer(name);
    if (n < least || n > most) fail(Result::invalid_usage, "{}={}: {} to {} is possible", name, n, least, most);
    return static_cast<int>(n);
  };
  Settings s;
  s.streams = number("NCCL_SOCKET_NTHREADS", 1, 16) * number("NCCL_NSOCKS_PERTHREAD", 1, kMostStreams);
  if (s.streams > kMostStreams)
    fail(Result::invalid_usage, "NCCL_SOCKET_NTHREADS times NCCL_NSOCKS_PERTHREAD are {} sockets between two ranks: {} are possible", s.streams,
         kMostStreams);
  s.send_buffer = number("NCCL_SOCKET_SNDBUF", 0, 1 << 30);
  s.receive_buffer = number("NCCL_SOCKET_RCVBUF", 0, 1 << 30);
  s.congestion = congestion_of(options.text("MUSTER_TCP_CONGESTION"));
  s.most_silence = std::chrono::duration_cast<std::chrono::milliseconds>(options.seconds("MUSTER_LINK_TIMEOUT"));
  s.names_interfaces = !options.text("NCCL_SOCKET_IFNAME").empty() && options.text("NCCL_SOCKET_IFNAME")[0] != '^';
  const std::string& family = options.text("NCCL_SOCKET_FAMILY");
  s.family = family == "AF_INET" ? AF_INET : family == "AF_INET6" ? AF_INET6 : 0;
  const std::string& range = options.text("MUSTER_PORT_RANGE");
  if (const size_t dash = range.find('-'); dash != range.npos) {
    std::from_chars(range.data(), range.data() + dash, s.low_port);
    std::from_chars(range.data() + dash + 1, range.data() + range.size(), s.high_port);
    s.high_port = std::min(s.high_port, 65535);
  }
  return s;
}

void size_buffers(int fd, const Settings& s) {
  if (s.send_buffer > 0) set_wish(fd, SOL_SOCKET, SO_SNDBUF, s.send_buffer);
  if (s.receive_buffer > 0) set_wish(fd, SOL_SOCKET, SO_RCVBUF, s.receive_buffer);
}

bool bind_to_device(int fd, const std::string& device) {
  return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device.data(), static_cast<socklen_t>(device.size())) == 0;
}

// The kernel asks a host that says nothing. It isn't told to end connections to hosts that don't answer what was sent
// (TCP_USER_TIMEOUT): it would end those to stopped processes, too, whose buffers are full.
void tune(int fd, const Settings& s) {
  const auto seconds = [](std::chrono::milliseconds t) { return std::max(1, static_cast<int>(t.count() / 1000)); };
  set_wish(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (!s.congestion.empty()) set_congestion(fd, s.congestion);
  set_wish(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_wish(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds(s.most_silence / 3));
  set_wish(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds(s.most_silence / 6));
  set_wish(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

std::chrono::milliseconds Silence::lasts(int fd, bool* under_way) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  *under_way = *under_way || info.tcpi_unacked > 0;
  const bool asked_in_vain = info.tcpi_retransmits > 0 || info.tcpi_probes > 0;
  const auto now = std::chrono::steady_clock::now();
  if (!asked_in_vain) {
    since_ = {};
    return {};
  }
  if (since_ == decltype(since_){}) since_ = now;
  return std::min(std::chrono::duration_cast<std::chrono::milliseconds>(now - since_), std::chrono::milliseconds(info.tcpi_last_ack_recv));
}

}  // namespace muster::tcp
