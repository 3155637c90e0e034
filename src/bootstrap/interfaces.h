// Which network interfaces the ranks meet over: what people set with NCCL_SOCKET_IFNAME and
// NCCL_SOCKET_FAMILY, and what is sensible when they set nothing.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/address.h"

namespace muster {

struct Interface {
  std::string name;
  unsigned flags = 0;  // IFF_UP, IFF_RUNNING, IFF_LOOPBACK ...
  std::vector<Address> addresses;
};

// An address to listen at and to connect from.
struct Source {
  Address address;        // port 0; kind local when the machine has no usable IP interface
  std::string interface;  // empty for kind local
};

// The usable sources, best first; never empty.
//  ifname: prefixes, separated by commas; '=' in front: exact names; '^' in front: exclude. Empty: no wish.
//  family: AF_INET, AF_INET6, or empty.
// Interfaces that are down, not running or without address are skipped; docker* and virbr* serve only when
// named; a link-local IPv6 address only when there is no other, and loopback when there is nothing else at
// all. Among those that nobody named, or that one prefix names, the interface with the address `way` comes
// first: the kernel leaves by it for where the ranks meet. Throws invalid_usage, listing the interfaces there are, when a wish can't be met.
std::vector<Source> choose_sources(std::span<const Interface> interfaces, std::string_view ifname,
                                   std::string_view family, const Address& way = {});

bool loopback_runs(std::span<const Interface> interfaces);

std::vector<Interface> list_interfaces();  // getifaddrs, in the kernel's order

}  // namespace muster
