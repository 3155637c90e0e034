// Many hosts on one machine, made of Linux namespaces. Each has a network, a name, mounts, /dev/shm, /sys and
// System V memory of its own, so that nothing but the network joins them. They know each other's names.
// Nothing has a name outside: however this process ends, all of it is gone.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "support/processes.h"

namespace muster::test {

// A rail is a switch with a cable to the interface "rail0", "rail1" ... of every host.
struct Wiring {
  int hosts = 2;
  int rails = 1;
  std::vector<std::string> names = {};  // of the hosts; "host0", "host1" ... where there are none
  bool ipv4 = true;
  bool ipv6 = false;
  // In front of the rails every host has "stray0", whose address is the same on all hosts, and "stray1", in a
  // subnet of this host alone: both are up, and lead nowhere.
  bool strays = false;
  std::map<int, int> megabits = {};  // per second, of rails that are slow
  bool one_network = false;          // IPv4 addresses of all rails are: routes lead to rail0
  bool one_switch = false;           // all cables go to the first rail's
};

class Hosts {
 public:
  // Why hosts can't be made here, for GTEST_SKIP; empty where they can.
  static std::string why_not(const Wiring& wiring = {});

  // Throws std::runtime_error with what failed. In a process of run() it stands for the hosts that its parent
  // made.
  explicit Hosts(const Wiring& wiring);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  int size() const { return wiring_.hosts; }
  std::string name(int host) const;
  std::string address(int host, int rail = 0) const;  // IPv4 where there is a choice

  // run_processes with rank r in host host_of[r], with what torchrun's environment says of a job of several
  // hosts.
  void run(const std::vector<int>& host_of, const std::function<void(int rank)>& fn,
           const ProcessExpectations& expected = {}) const;

  // The beginning of a shell command that is to run in the host: inside(0) + "hostname".
  std::string inside(int host) const;

  // Also from ranks. Plugs the cable of a host's interface out and in: both ends see that there is no
  // carrier.
  void plug(int host, int rail, bool in) const;
  // Also from ranks. Whether the switch passes on what the host sends and gets: when it doesn't, the
  // interface looks up and everything vanishes without a word.
  void pass(int host, int rail, bool on) const;

 private:
  struct Namespaces {
    int net = -1, mounts = -1, names = -1, ipc = -1, root = -1;
  };
  // Setting up; the process that holds new namespaces until they are in use.
  class Keeper;
  void wire(const std::vector<Keeper>& keepers);
  void wait_for_carrier(int host, int rail) const;
  void in_switch(const std::string& commands) const;

  Wiring wiring_;
  int maker_;   // the process whose descriptors these are
  int switch_;  // network namespace of the rails' switches
  std::vector<Namespaces> hosts_;
};

// First in a test, for the parent and the ranks alike.
#define NEED_HOSTS(...)                                                                  \
  if (!muster::test::is_rank_process())                                                  \
    if (const std::string why = muster::test::Hosts::why_not(__VA_ARGS__); !why.empty()) \
  GTEST_SKIP() << "no hosts can be made here: " << why

}  // namespace muster::test
