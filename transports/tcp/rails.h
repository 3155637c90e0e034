// The addresses at which ranks can be reached, by network interface.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::tcp {

// An address with a port. text(): "10.0.0.1@4711".
struct Place {
  sockaddr_storage address{};
  socklen_t length = 0;
  // Of this host's own addresses only:
  int prefix = -1;     // bits that its network's addresses begin with
  std::string device;  // its interface, where another one has an address in the same network, so that routes don't say which to use

  static std::optional<Place> parse(std::string_view text);
  static Place of_peer(int fd);
  static Place of_this(int fd);
  std::string text() const;
  int family() const { return address.ss_family; }
  int port() const;
  void set_port(int port);
};

// The addresses of one network interface, any of which serves.
using Rail = std::vector<Place>;
std::string write_rails(const std::vector<Rail>& rails);
std::vector<Rail> read_rails(std::string_view text);  // what can't be read is left out

// Of these interfaces, those that are up, IPv4 first; without names one rail of all addresses there are, loopback last. Ports
// are 0. Link-local addresses mean nothing elsewhere.
std::vector<Rail> usable_rails(const std::vector<std::string>& interfaces, int family);

// The network interface that has this address of this host; empty where none has, or it can't be found out.
std::string interface_of(const Place& place);

// Which of this host's rails goes with which of a peer's: those that have addresses in one network; where no two have, the first
// with the first, and so on.
struct RailPair {
  const Rail *mine, *theirs;
};
std::vector<RailPair> pair_rails(const std::vector<Rail>& mine, const std::vector<Rail>& theirs);

}  // namespace muster::tcp
