// How flows share what they go over: max-min fairly. No flow can have more without one that has no more than
// it having less (progressive filling: Bertsekas and Gallager, "Data Networks", 2nd edition, 6.5.2).
//
// Only what an event touches is worked out anew: the flows that share something with those that began or
// ended, directly or by way of others. Resources that can't make a difference are left out beforehand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace muster {

class FairShares {
 public:
  // `routes`: of each flow the resources it will go over whenever it goes, as indices of `capacities` (each >
  // 0).
  FairShares(std::span<const double> capacities, std::span<const std::vector<uint32_t>> routes);

  // `most`: this flow has no more than that, whatever is free; > 0.
  void start(uint32_t flow, double most);
  void stop(uint32_t flow);
  bool going(uint32_t flow) const { return state_[flow].going; }
  double rate(uint32_t flow) const {
    return state_[flow].rate;
  }  // of a flow that goes, after update(); else 0

  // Works out rates after starts and stops; calls changed(flow, old rate) for each flow that goes and whose
  // rate is another.
  template <class F>
  void update(F changed) {
    while (next_component()) {
      for (const uint32_t f : flows_) {
        FlowState& s = state_[f];
        if (s.rate == s.fill) continue;
        const double before = s.rate;
        s.rate = s.fill;
        changed(f, before);
      }
    }
  }

 private:
  bool next_component();
  void gather(uint32_t resource);
  void fill();
  void fix(uint32_t flow, double rate);
  void touch(uint32_t resource);

  struct FlowState {
    double own = 0;   // the least of what no other flow goes over
    double most = 0;  // it may not have more, own included
    double rate = 0;
    double fill = 0;         // its rate to be
    uint64_t component = 0;  // the one that it was last seen in
    uint32_t first_hop = 0, last_hop = 0;
    bool going = false, fixed = false;  // fixed: has its rate to be
  };
  struct Hop {
    uint32_t flow, resource, position;  // in members_[first_member_[resource]...]
  };
  std::vector<double> capacities_;  // of resources that flows share
  std::vector<FlowState> state_;    // by flow
  std::vector<Hop> hops_;
  std::vector<uint32_t> first_member_;  // per resource
  std::vector<uint32_t> members_;       // hops of flows that go
  std::vector<uint32_t> active_;        // per resource: how many

  std::vector<uint32_t> touched_, alone_;  // resources; flows that share nothing and have just begun
  std::vector<bool> is_touched_;
  uint64_t component_ = 0;
  std::vector<uint64_t> seen_resource_;
  std::vector<uint32_t> flows_, shared_;  // of the component
  std::vector<double> left_;              // per resource
  std::vector<uint32_t> open_;            // per resource: flows without a rate yet
  std::vector<uint32_t> by_most_;
};

}  // namespace muster
