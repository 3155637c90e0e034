#include "plan/fair_shares.h"

#include <algorithm>
#include <limits>
#include <map>

namespace muster {

namespace {

// Shares that differ by less are one: what rounding makes of equal ones.
constexpr double kSame = 1 + 1e-9;

}  // namespace

FairShares::FairShares(std::span<const double> capacities, std::span<const std::vector<uint32_t>> routes,
                       std::span<const std::vector<uint32_t>> counts) {
  using Uses = std::vector<std::pair<uint32_t, uint32_t>>;  // of flows or resources, and how many
  const size_t n = routes.size();
  std::vector<Uses> users(capacities.size());
  for (size_t f = 0; f < n; ++f)
    for (size_t i = 0; i < routes[f].size(); ++i)
      if (Uses& u = users[routes[f][i]]; u.empty() || u.back().first != f)
        u.emplace_back(static_cast<uint32_t>(f), counts.empty() ? 1 : counts[f][i]);
  // Of resources that the same flows use only the narrowest counts; one that a single flow uses is that
  // flow's own.
  std::map<Uses, double> distinct;
  for (size_t r = 0; r < users.size(); ++r) {
    if (users[r].empty()) continue;
    const auto [at, is_new] = distinct.try_emplace(std::move(users[r]), capacities[r]);
    if (!is_new) at->second = std::min(at->second, capacities[r]);
  }
  std::vector<Uses> shared(n);
  std::vector<double> own(n, std::numeric_limits<double>::infinity());
  for (const auto& [flows, capacity] : distinct) {
    if (flows.size() == 1) {
      const auto& [flow, count] = flows[0];
      own[flow] = std::min(own[flow], capacity / count);
      continue;
    }
    for (const auto& [flow, count] : flows)
      shared[flow].emplace_back(static_cast<uint32_t>(shared_.size()), count);
    shared_.emplace_back().capacity = capacity;
  }
  std::map<std::pair<Uses, double>, uint32_t> kinds;
  group_of_.resize(n);
  for (size_t f = 0; f < n; ++f) {
    if (shared[f].empty()) {  // shares nothing with others of its kind either
      kind_of_.push_back(static_cast<uint32_t>(kinds_.size()));
      kinds_.emplace_back().own = own[f];
      continue;
    }
    const auto [at, is_new] =
        kinds.try_emplace({std::move(shared[f]), own[f]}, static_cast<uint32_t>(kinds_.size()));
    kind_of_.push_back(at->second);
    if (!is_new) continue;
    Kind& kind = kinds_.emplace_back();
    kind.own = own[f];
    kind.first = static_cast<uint32_t>(resources_.size());
    resources_.insert(resources_.end(), at->first.first.begin(), at->first.first.end());
    kind.last = static_cast<uint32_t>(resources_.size());
  }
}

uint32_t FairShares::group_for(uint32_t kind, double most) {
  Kind& k = kinds_[kind];
  if (k.group != UINT32_MAX && k.asked == most) return k.group;
  k.asked = most;
  for (const uint32_t g : k.groups)
    if (groups_[g].asked == most) return k.group = g;
  const auto g = static_cast<uint32_t>(groups_.size());
  k.groups.push_back(g);
  k.group = g;
  Group& s = groups_.emplace_back();
  s.asked = most;
  s.most = std::min(k.own, most);
  s.first_hop = static_cast<uint32_t>(hops_.size());
  for (uint32_t i = k.first; i < k.last; ++i)
    hops_.push_back({g, resources_[i].first, 0, resources_[i].second});
  s.last_hop = static_cast<uint32_t>(hops_.size());
  return g;
}

void FairShares::touch(uint32_t resource) {
  if (shared_[resource].touched) return;
  shared_[resource].touched = true;
  touched_.push_back(resource);
}

uint32_t FairShares::start(uint32_t flow, double most) {
  const uint32_t g = group_for(kind_of_[flow], most);
  group_of_[flow] = g;
  Group& s = groups_[g];
  if (s.flows == 0) seeds_.push_back(g);
  for (uint32_t h = s.first_hop; h < s.last_hop; ++h) {
    touch(hops_[h].resource);
    Shared& r = shared_[hops_[h].resource];
    if (s.most < std::numeric_limits<double>::infinity())
      r.asked += s.most * hops_[h].count;
    else
      ++r.insatiable;
    if (s.flows > 0) continue;
    hops_[h].position = static_cast<uint32_t>(r.members.size());
    r.members.push_back(h);
  }
  ++s.flows;
  return g;
}

void FairShares::stop(uint32_t flow) {
  Group& s = groups_[group_of_[flow]];
  --s.flows;
  if (s.flows == 0) s.rate = 0;
  for (uint32_t h = s.first_hop; h < s.last_hop; ++h) {
    touch(hops_[h].resource);
    Shared& r = shared_[hops_[h].resource];
    if (s.most < std::numeric_limits<double>::infinity())
      r.asked -= s.most * hops_[h].count;
    else
      --r.insatiable;
    if (s.flows > 0) continue;
    const uint32_t last = r.members.back();
    r.members[hops_[h].position] = last;
    hops_[last].position = hops_[h].position;
    r.members.pop_back();
    if (r.members.empty()) r.asked = 0;  // what rounding left
  }
}

bool FairShares::next_component() {
  find_seeds();
  while (!seeds_.empty()) {
    const uint32_t g = seeds_.back();
    seeds_.pop_back();
    if (groups_[g].flows == 0 || groups_[g].seen > settled_) continue;
    ++number_;
    gather(g);
    fill();
    return true;
  }
  settled_ = number_;
  return false;
}

// To groups that began come those that share something which is tight, or was.
void FairShares::find_seeds() {
  for (const uint32_t i : touched_) {
    Shared& r = shared_[i];
    const bool was_tight = r.tight;
    r.touched = false;
    r.tight = r.insatiable > 0 || r.asked * kSame >= r.capacity;
    if (!r.tight && !was_tight) continue;
    for (const uint32_t m : r.members) seeds_.push_back(hops_[m].group);
  }
  touched_.clear();
}

void FairShares::gather(uint32_t group) {
  component_.assign(1, group);
  open_resources_.clear();
  groups_[group].seen = number_;
  groups_[group].fixed = false;
  for (size_t i = 0; i < component_.size(); ++i) {
    const uint32_t first = groups_[component_[i]].first_hop, last = groups_[component_[i]].last_hop;
    for (uint32_t h = first; h < last; ++h) {
      Shared& r = shared_[hops_[h].resource];
      if (!r.tight || r.seen == number_) continue;
      r.seen = number_;
      r.left = r.capacity;
      r.open = 0;
      open_resources_.push_back(hops_[h].resource);
      for (const uint32_t m : r.members) {
        const uint32_t g = hops_[m].group;
        Group& s = groups_[g];
        r.open += s.flows * hops_[m].count;
        if (s.seen == number_) continue;
        s.seen = number_;
        s.fixed = false;
        component_.push_back(g);
      }
    }
  }
}

void FairShares::fix(uint32_t group, double rate) {
  Group& s = groups_[group];
  s.fixed = true;
  s.fill = rate;
  for (uint32_t h = s.first_hop; h < s.last_hop; ++h) {
    Shared& r = shared_[hops_[h].resource];
    if (r.seen != number_) continue;
    const uint32_t shares = s.flows * hops_[h].count;
    r.left -= rate * shares;
    r.open -= shares;
  }
}

void FairShares::fill() {
  if (open_resources_.empty()) {  // then it is one
    groups_[component_[0]].fill = groups_[component_[0]].most;
    return;
  }
  by_most_ = component_;
  std::sort(by_most_.begin(), by_most_.end(), [&](uint32_t a, uint32_t b) {
    return groups_[a].most != groups_[b].most ? groups_[a].most < groups_[b].most : a < b;
  });
  size_t next = 0;
  for (;;) {
    while (next < by_most_.size() && groups_[by_most_[next]].fixed) ++next;
    if (next == by_most_.size()) return;
    // All rates grow alike until a flow has its most or a resource is used up.
    double level = std::numeric_limits<double>::infinity();
    size_t kept = 0;
    for (const uint32_t r : open_resources_) {
      if (shared_[r].open == 0) continue;
      open_resources_[kept++] = r;
      level = std::min(level, shared_[r].left / shared_[r].open);
    }
    open_resources_.resize(kept);
    if (const double most = groups_[by_most_[next]].most; most <= level) {
      for (; next < by_most_.size() && groups_[by_most_[next]].most == most; ++next)
        if (!groups_[by_most_[next]].fixed) fix(by_most_[next], most);
      continue;
    }
    for (const uint32_t r : open_resources_) {
      const Shared& s = shared_[r];
      if (s.open == 0 || s.left / s.open > level * kSame) continue;
      for (const uint32_t m : s.members)
        if (const uint32_t g = hops_[m].group; !groups_[g].fixed) fix(g, std::min(level, groups_[g].most));
    }
  }
}

}  // namespace muster
