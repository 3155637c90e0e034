// Where a process listens: an IPv4 or IPv6 address with a port, or a UNIX socket in the abstract namespace.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>

#include "bootstrap/wire.h"

namespace muster {

struct Address {
  enum class Kind : uint8_t { none = 0, ipv4 = 4, ipv6 = 6, local = 1 };
  Kind kind = Kind::none;
  std::array<uint8_t, 16>
      bytes{};         // network order; IPv4 in the first four; local: what the socket's name is made of
  uint16_t port = 0;   // host order
  uint32_t scope = 0;  // IPv6 link-local: the interface's index on the host that has the address

  static Address from_sockaddr(const sockaddr* address);  // kind none for families other than IPv4, IPv6
  static Address local(const std::array<uint8_t, 16>& name) { return {Kind::local, name}; }

  sockaddr_storage to_sockaddr(socklen_t* length) const;
  int family() const;
  bool is_loopback() const;
  bool is_link_local() const;  // fe80::/10
  // Reachable only from inside the same network namespace of the same host.
  bool only_here() const { return kind == Kind::local || is_loopback(); }
  std::string text() const;       // "10.0.0.1:4711", "[fe80::1%2]:4711", "UNIX socket @muster-..."
  std::string host_text() const;  // without the port

  void write(Writer& w) const;
  static Address read(Reader& r);  // rejects an unknown kind
  friend bool operator==(const Address&, const Address&) = default;
  friend auto operator<=>(const Address&, const Address&) = default;
};

}  // namespace muster
