// The rings' part within one host: orders of its ranks from where a ring comes in to where it leaves.
//
// Every link is two resources, one per direction, and every port two more, what comes from and goes to the
// network. A set of rings at one speed is possible if on no resource more rings meet than capacity / speed.
// What is between hosts is treated as one more member, which every ring passes: so a ring is a cycle on one
// host and on several.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topology/machine.h"
#include "topology/paths.h"

namespace muster {

// Ranks and nodes are numbered by int, vectors by size_t.
inline size_t at(int i) { return static_cast<size_t>(i); }

// A way between hosts: a network port; the NVSwitches of a domain; or, if node is kNone, a port of which
// nothing is known.
struct GatePort {
  int node = topology::kNone;
  double gbytes_per_s = 0;
};

struct HostRing {
  std::vector<int> order;         // members; of several hosts' rings the first receives, the last sends
  int in_port = topology::kNone;  // index into in_ports
  int out_port = topology::kNone;
  int by_way_of = topology::kNone;  // member whose GPU hands on to out_port; kNone: the last one itself
};

class HostRings {
 public:
  // `members`: nodes (GPUs or NUMA nodes; a node may be several members'). `in_ports` and `out_ports` are
  // empty on a single host, and equal unless gates differ.
  HostRings(const topology::Machine& m, std::vector<int> members, std::vector<GatePort> in_ports,
            std::vector<GatePort> out_ports);

  // What no set of rings exceeds, GB/s: the smallest maximum flow to or from a member, on the links that
  // rings may use (every ring passes every cut), and what its neighbours allow. Infinite where no link is
  // between members.
  double roof() const { return roof_; }
  // No more rings than this fit at a speed.
  int most_rings(double gbytes_per_s) const;
  // Of the resources that rings may use, distinct.
  std::vector<double> capacities() const;

  // As many rings of this speed as are found, up to `most`, in at most about `steps` hops tried, which are
  // subtracted. Speed 0: wherever there is a path. `same_port`: each leaves by the port it came in by.
  std::vector<HostRing> find(double gbytes_per_s, int most, bool same_port, int64_t& steps) const;
  // Steps that so many rings take if no hop has to be taken back.
  int64_t steps_straight(int rings) const;
  // The order of members, by the port that is nearest to each end, whatever the paths.
  HostRing in_order(bool same_port) const;
  // The largest speed at which all of them fit at once; 0 where a path is missing.
  double speed_of(std::span<const HostRing> rings) const;

  topology::PathClass farthest_hop(std::span<const HostRing> rings) const;
  topology::PathClass farthest_port(std::span<const HostRing> rings) const;

 private:
  friend class RingSearcher;
  struct Way {
    topology::PathClass path_class = topology::PathClass::dis;
    double gbytes_per_s = 0;
    std::vector<int> resources;                           // in the order that data passes them
    int first = topology::kNone, last = topology::kNone;  // nodes of the machine
    int by_way_of = topology::kNone;
    bool open() const { return path_class != topology::PathClass::dis; }
  };

  const Way& hop(int from, int to) const {
    return hops_[static_cast<size_t>(place_of_[static_cast<size_t>(from)] * places_ +
                                     place_of_[static_cast<size_t>(to)])];
  }
  const Way& in(int port, int member) const { return in_[static_cast<size_t>(port * size_ + member)]; }
  const Way& out(int port, int member) const { return out_[static_cast<size_t>(port * size_ + member)]; }
  bool may_hop(int from, int to) const {
    return hop(from, to).path_class <= farthest_ && hop(from, to).open();
  }
  Way way_of(const topology::Machine& m, const topology::Path& p) const;
  void make_ways(const topology::Machine& m, const std::vector<GatePort>& in_ports,
                 const std::vector<GatePort>& out_ports);
  void choose_class();
  void find_roof(const topology::Machine& m);
  void find_bundles();
  template <class Use>
  void each_way(Use use) const;  // of those that rings may use

  std::vector<int> members_;
  int size_ = 0, in_ports_ = 0, out_ports_ = 0;
  std::vector<int> place_of_;  // of each member: number of its node among the places_ different ones
  int places_ = 0;
  std::vector<double> capacity_;  // of resources: 2 per link, then 1 per port in, then 1 per port out
  int first_in_ = 0, first_out_ = 0;
  std::vector<Way> hops_;  // between places
  std::vector<Way> in_, out_;
  topology::PathClass farthest_ = topology::PathClass::dis;  // of hops: the closest class that has a ring
  // The links by which a member or the outside sends, or receives, all that it does: a ring takes one of each
  // bundle.
  std::vector<std::vector<int>> bundles_;
  double roof_ = 0;
};

}  // namespace muster
