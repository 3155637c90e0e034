#include "plan/fair_shares.h"

#include <algorithm>
#include <limits>
#include <map>

namespace muster {

namespace {

// Shares that differ by less are one: what rounding makes of equal ones.
constexpr double kSame = 1 + 1e-9;

}  // namespace

FairShares::FairShares(std::span<const double> capacities, std::span<const std::vector<uint32_t>> routes) {
  const size_t n = routes.size();
  state_.resize(n);
  for (FlowState& f : state_) f.own = std::numeric_limits<double>::infinity();

  std::vector<std::vector<uint32_t>> users(capacities.size());
  for (size_t f = 0; f < n; ++f)
    for (const uint32_t r : routes[f])
      if (users[r].empty() || users[r].back() != f) users[r].push_back(static_cast<uint32_t>(f));
  // Of resources that the same flows use only the narrowest counts; one that a single flow uses is that
  // flow's own.
  std::map<std::vector<uint32_t>, double> distinct;
  for (size_t r = 0; r < users.size(); ++r) {
    if (users[r].empty()) continue;
    const auto [at, is_new] = distinct.try_emplace(std::move(users[r]), capacities[r]);
    if (!is_new) at->second = std::min(at->second, capacities[r]);
  }
  std::vector<std::vector<uint32_t>> shared(n);
  for (const auto& [flows, capacity] : distinct) {
    if (flows.size() == 1) {
      state_[flows[0]].own = std::min(state_[flows[0]].own, capacity);
      continue;
    }
    const auto r = static_cast<uint32_t>(capacities_.size());
    capacities_.push_back(capacity);
    first_member_.push_back(static_cast<uint32_t>(members_.size()));
    members_.resize(members_.size() + flows.size());
    for (const uint32_t f : flows) shared[f].push_back(r);
  }
  for (size_t f = 0; f < n; ++f) {
    state_[f].first_hop = static_cast<uint32_t>(hops_.size());
    for (const uint32_t r : shared[f]) hops_.push_back({static_cast<uint32_t>(f), r, 0});
    state_[f].last_hop = static_cast<uint32_t>(hops_.size());
  }
  active_.assign(capacities_.size(), 0);
  open_.assign(capacities_.size(), 0);
  left_.assign(capacities_.size(), 0);
  seen_resource_.assign(capacities_.size(), 0);
  is_touched_.assign(capacities_.size(), false);
}

void FairShares::touch(uint32_t resource) {
  if (is_touched_[resource]) return;
  is_touched_[resource] = true;
  touched_.push_back(resource);
}

void FairShares::start(uint32_t flow, double most) {
  FlowState& s = state_[flow];
  s.going = true;
  s.most = std::min(s.own, most);
  if (s.first_hop == s.last_hop) alone_.push_back(flow);
  for (uint32_t h = s.first_hop; h < s.last_hop; ++h) {
    const uint32_t r = hops_[h].resource;
    hops_[h].position = first_member_[r] + active_[r]++;
    members_[hops_[h].position] = h;
    touch(r);
  }
}

void FairShares::stop(uint32_t flow) {
  FlowState& s = state_[flow];
  s.going = false;
  s.rate = 0;
  for (uint32_t h = s.first_hop; h < s.last_hop; ++h) {
    const uint32_t r = hops_[h].resource;
    const uint32_t last = members_[first_member_[r] + --active_[r]];
    members_[hops_[h].position] = last;
    hops_[last].position = hops_[h].position;
    touch(r);
  }
}

bool FairShares::next_component() {
  flows_.clear();
  if (!alone_.empty()) {
    for (const uint32_t f : alone_)
      if (state_[f].going) {
        state_[f].fill = state_[f].most;
        flows_.push_back(f);
      }
    alone_.clear();
    return true;
  }
  ++component_;
  while (!touched_.empty()) {
    const uint32_t r = touched_.back();
    touched_.pop_back();
    if (!is_touched_[r]) continue;  // was in an earlier one
    is_touched_[r] = false;
    if (active_[r] == 0) continue;
    gather(r);
    fill();
    return true;
  }
  return false;
}

void FairShares::gather(uint32_t resource) {
  shared_.assign(1, resource);
  seen_resource_[resource] = component_;
  for (size_t i = 0; i < shared_.size(); ++i) {
    const uint32_t r = shared_[i];
    is_touched_[r] = false;
    left_[r] = capacities_[r];
    open_[r] = active_[r];
    for (uint32_t m = first_member_[r]; m < first_member_[r] + active_[r]; ++m) {
      const uint32_t f = hops_[members_[m]].flow;
      FlowState& s = state_[f];
      if (s.component == component_) continue;
      s.component = component_;
      s.fixed = false;
      flows_.push_back(f);
      for (uint32_t h = s.first_hop; h < s.last_hop; ++h) {
        const uint32_t other = hops_[h].resource;
        if (seen_resource_[other] == component_) continue;
        seen_resource_[other] = component_;
        shared_.push_back(other);
      }
    }
  }
}

void FairShares::fix(uint32_t flow, double rate) {
  FlowState& s = state_[flow];
  s.fixed = true;
  s.fill = rate;
  for (uint32_t h = s.first_hop; h < s.last_hop; ++h) {
    left_[hops_[h].resource] -= rate;
    --open_[hops_[h].resource];
  }
}

void FairShares::fill() {
  by_most_ = flows_;
  std::sort(by_most_.begin(), by_most_.end(), [&](uint32_t a, uint32_t b) {
    return state_[a].most != state_[b].most ? state_[a].most < state_[b].most : a < b;
  });
  size_t next = 0;
  for (;;) {
    while (next < by_most_.size() && state_[by_most_[next]].fixed) ++next;
    if (next == by_most_.size()) return;
    // All rates grow alike until a flow has its most or a resource is used up.
    double level = std::numeric_limits<double>::infinity();
    size_t kept = 0;
    for (const uint32_t r : shared_) {
      if (open_[r] == 0) continue;
      shared_[kept++] = r;
      level = std::min(level, left_[r] / open_[r]);
    }
    shared_.resize(kept);
    if (state_[by_most_[next]].most <= level) {
      const double most = state_[by_most_[next]].most;
      for (; next < by_most_.size() && state_[by_most_[next]].most == most; ++next)
        if (!state_[by_most_[next]].fixed) fix(by_most_[next], most);
      continue;
    }
    for (const uint32_t r : shared_) {
      if (open_[r] == 0 || left_[r] / open_[r] > level * kSame) continue;
      for (uint32_t m = first_member_[r]; m < first_member_[r] + active_[r]; ++m) {
        const uint32_t f = hops_[members_[m]].flow;
        if (!state_[f].fixed) fix(f, std::min(level, state_[f].most));
      }
    }
  }
}

}  // namespace muster
