#include "bootstrap/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstring>

namespace muster {
namespace {

std::string local_name(const Address& a) {
  std::string name = "muster-";
  for (const uint8_t b : a.bytes) name += fmt::format("{:02x}", b);
  return name;
}

}  // namespace

Address Address::from_sockaddr(const sockaddr* address) {
  Address r;
  if (!address) return r;
  if (address->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof in);
    r.kind = Kind::ipv4;
    std::memcpy(r.bytes.data(), &in.sin_addr, 4);
    r.port = ntohs(in.sin_port);
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, address, sizeof in);
    r.kind = Kind::ipv6;
    std::memcpy(r.bytes.data(), &in.sin6_addr, 16);
    r.port = ntohs(in.sin6_port);
    if (r.is_link_local()) r.scope = in.sin6_scope_id;
  }
  return r;
}

int Address::family() const {
  switch (kind) {
    case Kind::ipv4:
      return AF_INET;
    case Kind::ipv6:
      return AF_INET6;
    case Kind::local:
      return AF_UNIX;
    case Kind::none:
      break;
  }
  return AF_UNSPEC;
}

sockaddr_storage Address::to_sockaddr(socklen_t* length) const {
  sockaddr_storage r{};
  *length = 0;
  if (kind == Kind::ipv4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, bytes.data(), 4);
    std::memcpy(&r, &in, *length = sizeof in);
  } else if (kind == Kind::ipv6) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    in.sin6_scope_id = scope;
    std::memcpy(&in.sin6_addr, bytes.data(), 16);
    std::memcpy(&r, &in, *length = sizeof in);
  } else if (kind == Kind::local) {
    sockaddr_un un{};
    un.sun_family = AF_UNIX;
    const std::string name =
        local_name(*this);  // a leading zero byte makes the name abstract: no file is left behind
    std::memcpy(un.sun_path + 1, name.data(), name.size());
    *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    std::memcpy(&r, &un, *length);
  }
  return r;
}

bool Address::is_loopback() const {
  if (kind == Kind::ipv4) return bytes[0] == 127;
  if (kind != Kind::ipv6) return false;
  in6_addr a{};
  std::memcpy(&a, bytes.data(), sizeof a);
  return IN6_IS_ADDR_LOOPBACK(&a);
}

bool Address::is_link_local() const {
  return kind == Kind::ipv6 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

std::string Address::host_text() const {
  if (kind == Kind::none) return "nowhere";
  if (kind == Kind::local) return "UNIX socket @" + local_name(*this);
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(family(), bytes.data(), text, sizeof text);
  return scope ? fmt::format("{}%{}", text, scope) : text;
}

std::string Address::text() const {
  if (kind == Kind::ipv4) return fmt::format("{}:{}", host_text(), port);
  if (kind == Kind::ipv6) return fmt::format("[{}]:{}", host_text(), port);
  return host_text();
}

void Address::write(Writer& w) const {
  w.u8(static_cast<uint8_t>(kind))
      .raw({reinterpret_cast<const char*>(bytes.data()), bytes.size()})
      .u16(port)
      .u32(scope);
}

Address Address::read(Reader& r) {
  Address a;
  a.kind = static_cast<Kind>(r.u8());
  const auto raw = r.raw(a.bytes.size());
  if (raw.size() == a.bytes.size()) std::memcpy(a.bytes.data(), raw.data(), raw.size());
  a.port = r.u16();
  a.scope = r.u32();
  if (a.family() == AF_UNSPEC && a.kind != Kind::none) r.reject();
  return a;
}

}  // namespace muster
