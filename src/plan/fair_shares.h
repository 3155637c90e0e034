// How flows share what they go over: max-min fairly. No flow can have more without one that has no more than
// it having less (progressive filling: Bertsekas and Gallager, "Data Networks", 2nd edition, 6.5.2).
//
// Flows with the same route and the same most always have the same rate: they are a group, and count as one.
// Only what an event touches is worked out anew: the groups that share something with those in which flows
// began or ended, directly or by way of others. Resources that have enough for all their flows, whatever
// others take, join nothing.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace muster {

class FairShares {
 public:
  // `routes`: of each flow the resources it will go over whenever it goes, as indices of `capacities` (each >
  // 0). `counts`: for each of these, how many flows that do alike the one stands for there, and takes as many
  // shares; empty: one each.
  FairShares(std::span<const double> capacities, std::span<const std::vector<uint32_t>> routes,
             std::span<const std::vector<uint32_t>> counts = {});

  // `most`: this flow has no more than that, whatever is free; > 0. Its group: from 0 on, of as many as there
  // were different ones.
  uint32_t start(uint32_t flow, double most);
  void stop(uint32_t flow);
  // Of each flow of a group that has some, after update(); else 0.
  double rate(uint32_t group) const { return groups_[group].rate; }
  uint32_t group_of(uint32_t flow) const { return group_of_[flow]; }  // of a flow that goes

  // Works out rates after starts and stops; calls changed(group) for each group of flows that go and whose
  // rate is another.
  template <class F>
  void update(F changed) {
    while (next_component()) {
      for (const uint32_t g : component_) {
        Group& s = groups_[g];
        if (s.rate == s.fill) continue;
        s.rate = s.fill;
        changed(g);
      }
    }
  }

 private:
  bool next_component();
  void find_seeds();
  void gather(uint32_t group);
  void fill();
  void fix(uint32_t group, double rate);
  void touch(uint32_t resource);
  uint32_t group_for(uint32_t kind, double most);

  // What flows of one route have in common.
  struct Kind {
    double own = 0;                // the least of what no other route goes over
    double asked = 0;              // of the group that a flow was started in last
    uint32_t group = UINT32_MAX;   // that
    uint32_t first = 0, last = 0;  // in resources_
    std::vector<uint32_t> groups;  // by most
  };
  struct Group {
    double asked = 0;  // the flows' most
    double most = 0;   // they may not have more, own included
    double rate = 0;
    double fill = 0;     // its rate to be
    uint64_t seen = 0;   // the component that it was last in
    uint32_t flows = 0;  // that go
    uint32_t first_hop = 0, last_hop = 0;
    bool fixed = false;  // has its rate to be
  };
  struct Hop {
    uint32_t group, resource, position;  // position: in members of the resource
    uint32_t count;                      // of the shares that a flow takes
  };
  struct Shared {  // a resource that flows of several routes, or several flows of one, go over
    double capacity = 0;
    std::vector<uint32_t> members;  // hops of groups with flows
    double asked = 0;               // by all of them that may have so much and no more
    uint32_t insatiable = 0;        // flows that take whatever there is
    bool tight = false;             // they could take it all; else it makes no difference to them
    double left = 0;
    uint32_t open = 0;  // flows without a rate yet
    uint64_t seen = 0;
    bool touched = false;
  };
  std::vector<Kind> kinds_;
  std::vector<uint32_t> kind_of_, group_of_;              // by flow
  std::vector<std::pair<uint32_t, uint32_t>> resources_;  // and counts
  std::vector<Group> groups_;
  std::vector<Hop> hops_;
  std::vector<Shared> shared_;

  std::vector<uint32_t> touched_;  // resources
  std::vector<uint32_t> seeds_;    // groups whose rate may be another
  uint64_t number_ = 0;            // of the component
  uint64_t settled_ = 0;           // components up to this one are of earlier updates
  std::vector<uint32_t> component_, open_resources_, by_most_;
};

}  // namespace muster
