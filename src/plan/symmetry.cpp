#include "plan/symmetry.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <span>
#include <unordered_map>

#include "base/math.h"

namespace muster {

namespace {

// What is symmetric shows in few rounds: along a chain classes become known one hop a round.
constexpr int kMostRounds = 32;

using Colours = std::vector<uint64_t>;

size_t distinct(Colours c) {
  std::sort(c.begin(), c.end());
  return static_cast<size_t>(std::unique(c.begin(), c.end()) - c.begin());
}

class Refinement {
 public:
  Refinement(const FlatPrograms& programs, const SimulationLayout& layout) : p_(programs), l_(layout) {
    list_uses();
    begin();
  }

  // False: there is little symmetry, or it takes long to find.
  bool run() {
    size_t before = classes();
    for (int round = 0; round < kMostRounds; ++round) {
      if (distinct(channel) * 2 > channel.size()) return false;
      refine();
      const size_t now = classes();
      if (now == before) return true;
      before = now;
    }
    return false;
  }

  Colours channel, connection, flow, window, resource;

 private:
  // Each channel's connections in the order in which it first uses them, which tells them apart.
  void list_uses() {
    first_use_.push_back(0);
    std::vector<uint32_t> seen_by(l_.connections.size(), SimulationLayout::kNone);
    for (uint32_t c = 0; c < p_.channels.size(); ++c) {
      for (uint32_t s = p_.channels[c].first_step; s < p_.channels[c].last_step; ++s) {
        const FlatStep& f = p_.steps[s];
        for (uint32_t e = 0; e < uint32_t{f.receives} + f.sends; ++e) {
          const uint32_t number = p_.ends[f.first_end + e];
          if (seen_by[number] == c) continue;
          seen_by[number] = c;
          uses_.push_back(number);
        }
      }
      first_use_.push_back(static_cast<uint32_t>(uses_.size()));
    }
    windows_of_.resize(p_.channels.size());
    for (uint32_t w = 0; w < p_.window_paths.size(); ++w)
      windows_of_[p_.window_paths[w].channel].push_back(w);
  }

  std::span<const uint32_t> uses(size_t c) const {
    return {uses_.data() + first_use_[c], uses_.data() + first_use_[c + 1]};
  }

  void begin() {
    connection.assign(l_.connections.size(), 0);
    for (size_t i = 0; i < connection.size(); ++i) {
      const SimulationLayout::Connection& c = l_.connections[i];
      connection[i] = hash_combine(hash_combine(c.latency, c.by_proxy), c.flow != SimulationLayout::kNone);
    }
    window.assign(p_.window_paths.size(), 0);
    for (size_t c = 0; c < p_.channels.size(); ++c) {
      channel.push_back(program_of(c));
      const auto mine = uses(c);
      for (size_t place = 0; place < mine.size(); ++place) {
        // A sum: which end is met first doesn't matter.
        const uint64_t sends = l_.connections[mine[place]].sender == c;
        connection[mine[place]] += mix64(2 * place + sends + 1);
      }
      for (size_t place = 0; place < windows_of_[c].size(); ++place)
        window[windows_of_[c][place]] = hash_combine(1, place);
    }
    flow.assign(l_.flows.size(), 0);
    for (const double gb_per_s : l_.capacities)
      resource.push_back(hash_combine(2, std::bit_cast<uint64_t>(gb_per_s)));
  }

  // What a channel does, its connections and windows named by the order of their first use.
  uint64_t program_of(size_t channel_number) const {
    const FlatChannel& c = p_.channels[channel_number];
    std::unordered_map<uint32_t, uint64_t> place;
    for (const uint32_t number : uses(channel_number)) place.try_emplace(number, place.size());
    const auto& own = windows_of_[channel_number];
    uint64_t h = 0;
    for (uint32_t s = c.first_step; s < c.last_step; ++s) {
      const FlatStep& f = p_.steps[s];
      h = hash_combine(h, hash_combine(f.pieces, std::bit_cast<uint64_t>(f.work)));
      for (uint32_t i = 0; i < f.pieces; ++i) h = hash_combine(h, p_.lengths[f.first_length + i]);
      h = hash_combine(h, (uint64_t{f.receives} << 48) | (uint64_t{f.sends} << 32) | f.windows);
      for (uint32_t e = 0; e < uint32_t{f.receives} + f.sends; ++e)
        h = hash_combine(h, place.at(p_.ends[f.first_end + e]));
      for (uint32_t w = 0; w < f.windows; ++w)
        h = hash_combine(h, p_.windows[f.first_window + w] - own.front());
    }
    for (uint32_t i = c.first_loop; i < c.last_loop; ++i) {
      const FlatLoop& loop = p_.loops[i];
      h = hash_combine(hash_combine(h, loop.tiles), hash_combine(loop.longest, loop.last - loop.first));
      for (uint32_t at = loop.first; at < loop.last; ++at)
        h = hash_combine(h, p_.sequence[at] - c.first_step);
    }
    return h;
  }

  // Each new colour has the old one in it, so classes are only ever divided.
  void refine() {
    std::vector<uint64_t> owner(flow.size(), 0);
    for (size_t i = 0; i < connection.size(); ++i) {
      const SimulationLayout::Connection& c = l_.connections[i];
      connection[i] = hash_combine(hash_combine(connection[i], channel[c.sender]), channel[c.receiver]);
      if (c.flow != SimulationLayout::kNone) owner[c.flow] = connection[i];
    }
    for (size_t w = 0; w < window.size(); ++w) {
      window[w] = hash_combine(window[w], channel[p_.window_paths[w].channel]);
      if (l_.window_flow[w] != SimulationLayout::kNone) owner[l_.window_flow[w]] = window[w];
    }
    for (size_t c = 0; c < channel.size(); ++c)
      if (l_.work_flow[c] != SimulationLayout::kNone) owner[l_.work_flow[c]] = hash_combine(3, channel[c]);
    std::vector<uint64_t> over(resource.size(), 0);
    for (size_t f = 0; f < flow.size(); ++f) {
      uint64_t way = 0;  // of its resources, in any order
      for (const uint32_t r : l_.routes[f]) way += mix64(resource[r]);
      flow[f] = hash_combine(hash_combine(flow[f], owner[f]), way);
      for (const uint32_t r : l_.routes[f]) over[r] += mix64(flow[f]);
    }
    for (size_t r = 0; r < resource.size(); ++r) resource[r] = hash_combine(resource[r], over[r]);
    for (size_t i = 0; i < connection.size(); ++i)
      if (const uint32_t f = l_.connections[i].flow; f != SimulationLayout::kNone)
        connection[i] = hash_combine(connection[i], flow[f]);
    for (size_t c = 0; c < channel.size(); ++c) {
      uint64_t& h = channel[c];
      for (const uint32_t i : uses(c)) h = hash_combine(h, connection[i]);
      for (const uint32_t w : windows_of_[c])
        h = hash_combine(h, l_.window_flow[w] == SimulationLayout::kNone ? window[w] : flow[l_.window_flow[w]]);
      if (l_.work_flow[c] != SimulationLayout::kNone) h = hash_combine(h, flow[l_.work_flow[c]]);
    }
  }

  size_t classes() const {
    return distinct(channel) + distinct(connection) + distinct(flow) + distinct(window) + distinct(resource);
  }

  const FlatPrograms& p_;
  const SimulationLayout& l_;
  std::vector<uint32_t> uses_, first_use_;
  std::vector<std::vector<uint32_t>> windows_of_;
};

struct Classes {
  std::vector<uint32_t> of;       // by member
  std::vector<uint32_t> first;    // by class: its first member
  std::vector<uint32_t> members;  // how many
};

Classes classes_of(const Colours& colours) {
  Classes c;
  std::unordered_map<uint64_t, uint32_t> known;
  for (uint32_t i = 0; i < colours.size(); ++i) {
    const auto [at, is_new] = known.try_emplace(colours[i], static_cast<uint32_t>(c.first.size()));
    if (is_new) {
      c.first.push_back(i);
      c.members.push_back(0);
    }
    ++c.members[at->second];
    c.of.push_back(at->second);
  }
  return c;
}

// The classes' flows over the classes' resources.
void fold_routes(SimulationLayout& l, const Classes& flows, const Classes& resources) {
  // Over the first resource of a class, how many flows of each class go.
  std::vector<std::map<uint32_t, uint32_t>> over(resources.first.size());
  for (uint32_t f = 0; f < l.routes.size(); ++f) {
    std::vector<uint32_t> each = l.routes[f];
    std::sort(each.begin(), each.end());
    each.erase(std::unique(each.begin(), each.end()), each.end());
    for (const uint32_t r : each)
      if (const uint32_t c = resources.of[r]; resources.first[c] == r) ++over[c][flows.of[f]];
  }
  std::vector<std::vector<uint32_t>> routes, counts;
  for (uint32_t c = 0; c < flows.first.size(); ++c) {
    std::vector<uint32_t>& route = routes.emplace_back();
    std::vector<uint32_t>& count = counts.emplace_back();
    for (const uint32_t r : l.routes[flows.first[c]]) {
      const uint32_t to = resources.of[r];
      if (std::find(route.begin(), route.end(), to) != route.end()) continue;
      route.push_back(to);
      count.push_back(over[to].at(c));
    }
  }
  l.routes = std::move(routes);
  l.counts = std::move(counts);
  std::vector<double> capacities;
  for (const uint32_t r : resources.first) capacities.push_back(l.capacities[r]);
  l.capacities = std::move(capacities);
}

// Of each class its first member's.
template <class T>
void take_first(std::vector<T>& all, const Classes& c) {
  std::vector<T> some;
  for (const uint32_t i : c.first) some.push_back(all[i]);
  all = std::move(some);
}

}  // namespace

Symmetry no_symmetry(const FlatPrograms& programs, const SimulationLayout& layout) {
  Symmetry s;
  s.channel.resize(programs.channels.size());
  s.flow.resize(layout.flows.size());
  std::iota(s.channel.begin(), s.channel.end(), 0);
  std::iota(s.flow.begin(), s.flow.end(), 0);
  return s;
}

Symmetry fold(FlatPrograms& programs, SimulationLayout& layout) {
  Refinement refinement(programs, layout);
  if (!refinement.run()) return no_symmetry(programs, layout);
  const Classes channels = classes_of(refinement.channel), connections = classes_of(refinement.connection),
                windows = classes_of(refinement.window), flows = classes_of(refinement.flow),
                resources = classes_of(refinement.resource);
  programs.keep(channels.first, channels.members, connections.of, windows.of);
  take_first(programs.connections, connections);
  take_first(programs.window_paths, windows);
  take_first(layout.connections, connections);
  const auto fold_flow = [&](uint32_t f) { return f == SimulationLayout::kNone ? SimulationLayout::kNone : flows.of[f]; };
  for (SimulationLayout::Connection& c : layout.connections) {
    c.sender = channels.of[c.sender];
    c.receiver = channels.of[c.receiver];
    c.flow = fold_flow(c.flow);
  }
  take_first(layout.flows, flows);
  for (SimulationLayout::Flow& f : layout.flows)
    f.owner = f.by_proxy ? connections.of[f.owner] : channels.of[f.owner];
  take_first(layout.work_flow, channels);
  for (uint32_t& f : layout.work_flow) f = fold_flow(f);
  take_first(layout.window_flow, windows);
  for (uint32_t& f : layout.window_flow) f = fold_flow(f);
  fold_routes(layout, flows, resources);
  return {channels.of, flows.of};
}

}  // namespace muster
