// Host names, and HOST:PORT as people write it.
#pragma once

#include <string>
#include <string_view>

#include "base/deadline.h"
#include "bootstrap/address.h"

namespace muster {

struct HostPort {
  std::string host;
  uint16_t port = 0;
};
// "host:port" or "[v6]:port". `variable` is named in the invalid_usage that anything else gets.
HostPort parse_host_port(std::string_view variable, std::string_view text);

// Number of a variable's whole text, in low..high; throws invalid_usage naming variable and text.
int parse_number(std::string_view variable, std::string_view text, int low, int high);

// IPv4 where there is a choice, unless `family` is AF_INET6. A resolver that asks for patience gets it until
// the deadline. A loopback address where no loopback interface runs becomes a UNIX socket named after it, which
// reaches as far: that of a new network namespace is down.
Address resolve(std::string_view variable, const HostPort& where, std::string_view family, Deadline deadline);

// Where rank 0 listens for those who resolve the same name: the address itself, or any address where the name
// means loopback on its own host only (as Debian's /etc/hosts does).
Address listening_address(const HostPort& where, const Address& resolved);
Address any_address(const Address& like);

}  // namespace muster
