#include "transports/tcp/rails.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/text.h"

namespace muster::tcp {
namespace {

constexpr size_t kMostPlaces = 16;

std::span<const uint8_t> bytes_of(const Place& p) {
  if (p.family() == AF_INET) return {reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in&>(p.address).sin_addr), 4};
  return {reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in6&>(p.address).sin6_addr), 16};
}

Place place_of(const sockaddr* a, const sockaddr* mask) {
  Place p;
  p.length = a->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&p.address, a, p.length);
  p.set_port(0);
  if (mask) {
    Place m;
    std::memcpy(&m.address, mask, p.length);
    m.address.ss_family = p.address.ss_family;
    p.prefix = 0;
    for (const uint8_t byte : bytes_of(m)) p.prefix += std::popcount(byte);
  }
  return p;
}

template <class Asks>
Place place_said_by(Asks asks, int fd) {
  Place p;
  p.length = sizeof p.address;
  p.address.ss_family = AF_INET;  // if that can't be said any more
  asks(fd, reinterpret_cast<sockaddr*>(&p.address), &p.length);
  return p;
}

bool in_network_of(const Place& mine, const Place& theirs) {
  if (mine.family() != theirs.family() || mine.prefix < 0) return false;
  const auto a = bytes_of(mine), b = bytes_of(theirs);
  for (size_t i = 0; i < a.size(); ++i) {
    const int bits = std::clamp(mine.prefix - static_cast<int>(8 * i), 0, 8);
    if ((a[i] ^ b[i]) >> (8 - bits) != 0) return false;
  }
  return true;
}

bool in_network_of(const Rail& mine, const Rail& theirs) {
  return std::ranges::any_of(mine, [&](const Place& m) { return std::ranges::any_of(theirs, [&](const Place& t) { return in_network_of(m, t); }); });
}

}  // namespace

std::optional<Place> Place::parse(std::string_view text) {
  const size_t at = text.rfind('@');
  if (at == text.npos) return {};
  const auto port = parse_c_integer(text.substr(at + 1));
  if (!port || *port < 0 || *port > 65535) return {};
  const std::string host(text.substr(0, at));
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  Place p;
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    std::memcpy(&p.address, &v4, p.length = sizeof v4);
  } else if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    std::memcpy(&p.address, &v6, p.length = sizeof v6);
  } else {
    return {};
  }
  p.set_port(static_cast<int>(*port));
  return p;
}

Place Place::of_peer(int fd) { return place_said_by(getpeername, fd); }
Place Place::of_this(int fd) { return place_said_by(getsockname, fd); }

std::string Place::text() const {
  char out[INET6_ADDRSTRLEN] = "?";
  if (family() == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, out, sizeof out);
  else
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, out, sizeof out);
  return fmt::format("{}@{}", out, port());
}

int Place::port() const {
  return ntohs(family() == AF_INET ? reinterpret_cast<const sockaddr_in&>(address).sin_port : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

void Place::set_port(int port) {
  (family() == AF_INET ? reinterpret_cast<sockaddr_in&>(address).sin_port : reinterpret_cast<sockaddr_in6&>(address).sin6_port) =
      htons(static_cast<uint16_t>(port));
}

std::string write_rails(const std::vector<Rail>& rails) {
  std::string text;
  for (const Rail& rail : rails) {
    if (!text.empty()) text += '\n';
    for (size_t i = 0; i < rail.size(); ++i) text += (i ? " " : "") + rail[i].text();
  }
  return text;
}

std::vector<Rail> read_rails(std::string_view text) {
  std::vector<Rail> rails;
  for (const std::string_view line : split(text, '\n')) {
    Rail rail;
    for (const std::string_view word : split(line, ' '))
      if (const auto p = Place::parse(word); p && rail.size() < kMostPlaces) rail.push_back(*p);
    if (!rail.empty() && rails.size() < kMostPlaces) rails.push_back(std::move(rail));
  }
  return rails;
}

std::vector<Rail> usable_rails(const std::vector<std::string>& interfaces, int family) {
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) fail_errno(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(head, freeifaddrs);
  std::vector<Rail> rails(std::max<size_t>(interfaces.size(), 1));
  Rail loopback;
  std::vector<std::pair<std::string, Place>> others;
  for (const ifaddrs* i = head; i; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || !(i->ifa_flags & IFF_RUNNING)) continue;
    const int f = i->ifa_addr->sa_family;
    if ((f != AF_INET && f != AF_INET6) || (family != 0 && f != family)) continue;
    if (f == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr)) continue;
    others.emplace_back(i->ifa_name, place_of(i->ifa_addr, i->ifa_netmask));
    const auto named = std::find(interfaces.begin(), interfaces.end(), i->ifa_name);
    if (!interfaces.empty() && named == interfaces.end()) continue;
    Rail& rail = interfaces.empty() && (i->ifa_flags & IFF_LOOPBACK) ? loopback : rails[static_cast<size_t>(named - interfaces.begin())];
    rail.push_back(place_of(i->ifa_addr, i->ifa_netmask));
  }
  rails[0].insert(rails[0].end(), loopback.begin(), loopback.end());
  for (size_t r = 0; r < interfaces.size(); ++r)
    for (Place& p : rails[r])
      if (std::ranges::any_of(others, [&](const auto& o) { return o.first != interfaces[r] && in_network_of(o.second, p); })) p.device = interfaces[r];
  for (Rail& rail : rails) {
    std::stable_sort(rail.begin(), rail.end(), [](const Place& a, const Place& b) { return a.family() == AF_INET && b.family() != AF_INET; });
    if (rail.size() > kMostPlaces) rail.resize(kMostPlaces);
  }
  std::erase_if(rails, [](const Rail& r) { return r.empty(); });
  return rails;
}

std::string interface_of(const Place& place) {
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(head, freeifaddrs);
  for (const ifaddrs* i = head; i; i = i->ifa_next)
    if (i->ifa_addr && i->ifa_addr->sa_family == place.family() && std::ranges::equal(bytes_of(place_of(i->ifa_addr, nullptr)), bytes_of(place)))
      return i->ifa_name;
  return {};
}

std::vector<RailPair> pair_rails(const std::vector<Rail>& mine, const std::vector<Rail>& theirs) {
  std::vector<RailPair> pairs;
  std::vector<bool> taken(mine.size());
  for (size_t t = 0; t < theirs.size(); ++t) {
    const auto fits = [&](size_t m) { return m < mine.size() && !taken[m] && in_network_of(mine[m], theirs[t]); };
    size_t m = t;  // of several in one network those at the same place
    if (!fits(m))
      for (m = 0; m < mine.size() && !fits(m);) ++m;
    if (m == mine.size()) continue;
    taken[m] = true;
    pairs.push_back({&mine[m], &theirs[t]});
  }
  for (size_t i = 0, n = pairs.empty() ? std::min(mine.size(), theirs.size()) : 0; i < n; ++i) pairs.push_back({&mine[i], &theirs[i]});
  return pairs;
}

}  // namespace muster::tcp
