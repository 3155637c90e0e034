#include "bootstrap/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"

namespace muster {
namespace {

std::string_view trim(std::string_view s) {
  const auto from = s.find_first_not_of(" \t");
  if (from == s.npos) return {};
  return s.substr(from, s.find_last_not_of(" \t") - from + 1);
}

// NCCL_SOCKET_IFNAME, taken apart. A sign in front of the list holds for all of it.
struct Wish {
  bool exact = false;
  bool exclude = false;
  std::vector<std::string> names;

  explicit Wish(std::string_view text) {
    text = trim(text);
    take_signs(text);
    while (!text.empty()) {
      const auto comma = text.find(',');
      auto entry = trim(text.substr(0, comma));
      text = comma == text.npos ? std::string_view{} : text.substr(comma + 1);
      take_signs(entry);
      if (!entry.empty()) names.emplace_back(entry);
    }
  }
  // Position in the list of the first entry that matches, or -1.
  int match(const std::string& interface) const {
    for (size_t i = 0; i < names.size(); ++i)
      if (exact ? interface == names[i] : interface.starts_with(names[i])) return static_cast<int>(i);
    return -1;
  }

 private:
  void take_signs(std::string_view& s) {
    for (; !s.empty() && (s[0] == '^' || s[0] == '='); s = trim(s.substr(1)))
      (s[0] == '^' ? exclude : exact) = true;
  }
};

bool looks_like_address(const std::string& name) {
  const std::string host = name.substr(0, name.find_first_of("/%"));
  char out[16];
  return inet_pton(AF_INET, host.c_str(), out) == 1 || inet_pton(AF_INET6, host.c_str(), out) == 1;
}

bool runs(const Interface& i) { return (i.flags & IFF_UP) && (i.flags & IFF_RUNNING); }

std::string describe(std::span<const Interface> interfaces) {
  std::string r;
  for (const Interface& i : interfaces) {
    r += fmt::format("{}{} (", r.empty() ? "" : ", ", i.name);
    if (!runs(i)) r += i.flags & IFF_UP ? "not running" : "down";
    if (!runs(i) && !i.addresses.empty()) r += ", ";
    for (size_t k = 0; k < i.addresses.size(); ++k)
      r += fmt::format("{}{}", k ? " " : "", i.addresses[k].host_text());
    if (runs(i) && i.addresses.empty()) r += "no address";
    r += ")";
  }
  return r.empty() ? "none" : r;
}

int parse_family(std::string_view family) {
  family = trim(family);
  if (family.empty()) return AF_UNSPEC;
  if (family == "AF_INET") return AF_INET;
  if (family == "AF_INET6") return AF_INET6;
  fail(Result::invalid_usage, "NCCL_SOCKET_FAMILY='{}' can't be read: AF_INET or AF_INET6 is wanted", family);
}

// IPv4 first, then global IPv6, then link-local IPv6.
const Address* best_address(const Interface& i, int family) {
  const auto rank = [](const Address& a) {
    return a.kind == Address::Kind::ipv4 ? 0 : a.is_link_local() ? 2 : 1;
  };
  const Address* best = nullptr;
  for (const Address& a : i.addresses)
    if ((family == AF_UNSPEC || a.family() == family) && (!best || rank(a) < rank(*best))) best = &a;
  return best;
}

// Lower is better. Docker's and libvirt's bridges lead nowhere that another rank listens.
constexpr int kNever = 3;
int default_rank(const Interface& i, const Address& a) {
  if (i.name.starts_with("docker") || i.name.starts_with("virbr")) return kNever;
  if (i.flags & IFF_LOOPBACK) return 2;
  return a.is_link_local() ? 1 : 0;
}

const Address* find_address(const Interface& i, const Address& wanted) {
  for (const Address& a : i.addresses)
    if (a.kind == wanted.kind && a.bytes == wanted.bytes) return &a;
  return nullptr;
}

void check_names(const Wish& wish, std::string_view text, std::span<const Interface> interfaces) {
  for (const std::string& name : wish.names)
    if (looks_like_address(name))
      fail(Result::invalid_usage,
           "NCCL_SOCKET_IFNAME='{}': '{}' looks like an address, but names of interfaces are wanted. This "
           "machine has {}",
           text, name, describe(interfaces));
  if (!wish.exclude && std::none_of(interfaces.begin(), interfaces.end(),
                                    [&](const Interface& i) { return wish.match(i.name) >= 0; }))
    fail(Result::invalid_usage, "NCCL_SOCKET_IFNAME='{}' {} no interface. This machine has {}", text,
         wish.exact ? "is the name of" : "is the beginning of the name of", describe(interfaces));
}

}  // namespace

std::vector<Source> choose_sources(std::span<const Interface> interfaces, std::string_view ifname,
                                   std::string_view family_text, const Address& way) {
  const int family = parse_family(family_text);
  const Wish wish(ifname);
  const bool named = !wish.names.empty() && !wish.exclude;
  if (!wish.names.empty()) check_names(wish, ifname, interfaces);

  struct Candidate {
    int rank;
    bool on_the_way;
    Source source;
  };
  std::vector<Candidate> found;
  bool any_usable = false;
  for (const Interface& i : interfaces) {
    any_usable |= runs(i) && !i.addresses.empty();
    const Address *address = best_address(i, family), *leaving = find_address(i, way);
    if (leaving && (family == AF_UNSPEC || leaving->family() == family)) address = leaving;
    if (!runs(i) || !address) continue;
    const int position = wish.match(i.name);
    if (named) {
      if (position >= 0) found.push_back({position, leaving != nullptr, {*address, i.name}});
    } else if (const int rank = default_rank(i, *address); position < 0 && rank != kNever) {
      found.push_back({rank, leaving != nullptr, {*address, i.name}});
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return std::pair(a.rank, !a.on_the_way) < std::pair(b.rank, !b.on_the_way); });

  std::vector<Source> r;
  // Something behind the best class would only be reached by accident: loopback next to a real network, say.
  for (const Candidate& c : found)
    if (named || c.rank == found[0].rank) r.push_back(c.source);
  if (r.empty() && named)
    fail(Result::invalid_usage,
         "NCCL_SOCKET_IFNAME='{}' names only interfaces that are down or have no {}address. This machine has "
         "{}",
         ifname,
         family == AF_INET    ? "IPv4 "
         : family == AF_INET6 ? "IPv6 "
                              : "",
         describe(interfaces));
  if (r.empty() && any_usable && family != AF_UNSPEC)
    fail(Result::invalid_usage,
         "NCCL_SOCKET_FAMILY={}: no usable interface has such an address. This machine has {}",
         trim(family_text), describe(interfaces));
  if (r.empty()) r.push_back({Address::local({}), ""});
  return r;
}

bool loopback_runs(std::span<const Interface> interfaces) {
  return std::any_of(interfaces.begin(), interfaces.end(),
                     [](const Interface& i) { return (i.flags & IFF_LOOPBACK) && runs(i) && !i.addresses.empty(); });
}

std::vector<Interface> list_interfaces() {
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) fail_errno(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(head, freeifaddrs);
  std::vector<Interface> r;
  for (const ifaddrs* i = head; i; i = i->ifa_next) {
    auto at = std::find_if(r.begin(), r.end(), [&](const Interface& k) { return k.name == i->ifa_name; });
    if (at == r.end()) at = r.insert(at, {i->ifa_name, i->ifa_flags, {}});
    if (const Address a = Address::from_sockaddr(i->ifa_addr); a.kind != Address::Kind::none)
      at->addresses.push_back(a);
  }
  return r;
}

}  // namespace muster
