#include "bootstrap/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <vector>

#include "base/error.h"
#include "bootstrap/handshake.h"
#include "bootstrap/interfaces.h"

namespace muster {

int parse_number(std::string_view variable, std::string_view text, int low, int high) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < low || n > high)
    fail(Result::invalid_usage, "{}='{}': a whole number in {}..{} is wanted", variable, text, low, high);
  return n;
}

HostPort parse_host_port(std::string_view variable, std::string_view text) {
  const auto colon = text.rfind(':');
  std::string_view host = text.substr(0, colon == text.npos ? 0 : colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (host.empty() || (!bracketed && host.find(':') != host.npos))
    fail(Result::invalid_usage,
         "{}='{}' can't be read: HOST:PORT is wanted, with an IPv6 address as [ADDRESS]:PORT", variable,
         text);
  if (bracketed) host = host.substr(1, host.size() - 2);
  return {std::string(host), static_cast<uint16_t>(parse_number(variable, text.substr(colon + 1), 1, 65535))};
}

Address resolve(std::string_view variable, const HostPort& where, std::string_view family,
                Deadline deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = family == "AF_INET" ? AF_INET : family == "AF_INET6" ? AF_INET6 : AF_UNSPEC;
  addrinfo* head = nullptr;
  Backoff backoff;
  int error = 0;
  while ((error = getaddrinfo(where.host.c_str(), nullptr, &hints, &head)) == EAI_AGAIN &&
         !deadline.expired())
    backoff.pause(deadline);
  // This name means loopback also where no /etc/hosts says so (RFC 6761, section 6.3).
  if (error != 0 && where.host == "localhost")
    error = getaddrinfo(hints.ai_family == AF_INET6 ? "::1" : "127.0.0.1", nullptr, &hints, &head);
  if (error != 0)
    fail(Result::invalid_usage,
         "{}: host '{}' can't be resolved: {}. Name a host that every rank can resolve, or its address",
         variable, where.host, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(head, freeaddrinfo);
  std::vector<Address> found;
  for (const addrinfo* i = head; i; i = i->ai_next)
    if (const Address a = Address::from_sockaddr(i->ai_addr); a.kind != Address::Kind::none)
      found.push_back(a);
  if (found.empty()) fail(Result::invalid_usage, "{}: host '{}' has no IP address", variable, where.host);
  std::stable_sort(found.begin(), found.end(),
                   [](const Address& a, const Address& b) { return a.kind < b.kind; });
  found.front().port = where.port;
  if (found.front().is_loopback() && !loopback_runs(list_interfaces()))
    return Address::local(name_of_text(Writer().text("muster loopback").text(found.front().text()).take()));
  return found.front();
}

Address any_address(const Address& like) {
  Address r;
  r.kind = like.kind;
  r.port = like.port;
  return r;
}

Address listening_address(const HostPort& where, const Address& resolved) {
  unsigned char out[16];
  const bool literal =
      inet_pton(AF_INET, where.host.c_str(), out) == 1 || inet_pton(AF_INET6, where.host.c_str(), out) == 1;
  return resolved.is_loopback() && !literal && where.host != "localhost" ? any_address(resolved) : resolved;
}

}  // namespace muster
