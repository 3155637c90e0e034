#include "plan/simulation_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace muster {

namespace {

// What is so near its end, but for rounding, is there.
constexpr double kRounding = 0.01;  // ticks

// Of so many bytes at a rate in GB/s, which is bytes per nanosecond; never 0.
uint64_t duration(double bytes, double gb_per_s) {
  return std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(bytes / gb_per_s * 1e3)));
}

}  // namespace

SimulationRun::SimulationRun(const FlatPrograms& programs, const SimulationLayout& layout,
                             const SimCosts& costs, const SimOptions& options, uint64_t tiles)
    : p_(programs),
      layout_(layout),
      costs_(costs),
      options_(options),
      tiles_(tiles),
      queues_(layout.connections.size()),
      shares_(layout.capacities, layout.routes, layout.counts) {
  for (const SimulationLayout::Connection& c : layout_.connections)
    connections_.push_back({c, 0, costs_.slots});
  for (const SimulationLayout::Flow& f : layout_.flows) flows_.push_back({f, 0});
  for (const FlatChannel& f : p_.channels) {
    ChannelState s;
    s.loop = f.first_loop;
    if (f.first_loop < f.last_loop) {
      s.at = p_.loops[f.first_loop].first;
      s.last = p_.loops[f.first_loop].last;
    }
    channels_.push_back(s);
  }
}

// From s.at on: past steps that have nothing to do in this tile, from tile to tile and loop to loop.
void SimulationRun::find_step(uint32_t channel) {
  ChannelState& s = channels_[channel];
  for (;;) {
    if (s.at != s.last) {
      s.step = p_.sequence[s.at];
      const FlatStep& f = step(s);
      if (f.pieces == 0 || s.tile * p_.tile_bytes() < f.longest) return;
      ++s.at;
      continue;
    }
    s.step = UINT32_MAX;
    if (s.loop == p_.channels[channel].last_loop) return;
    const FlatLoop& l = p_.loops[s.loop];
    if (l.first < l.last && ++s.tile < tiles_of(l)) {
      s.at = l.first;
      continue;
    }
    s.tile = 0;
    if (++s.loop == p_.channels[channel].last_loop) return;
    s.at = p_.loops[s.loop].first;
    s.last = p_.loops[s.loop].last;
  }
}

void SimulationRun::try_start(uint32_t channel) {
  ChannelState& s = channels_[channel];
  if (s.busy || s.step == UINT32_MAX) return;
  const FlatStep& f = step(s);
  const uint32_t* ends = p_.ends.data() + f.first_end;
  for (uint32_t i = 0; i < uint32_t{f.receives} + f.sends; ++i) {
    const ConnectionState& c = connections_[ends[i]];
    if ((i < f.receives ? c.full : c.free) > 0) continue;
    s.blocked = ends[i];
    return;
  }
  s.blocked = UINT32_MAX;
  for (uint32_t i = 0; i < f.receives; ++i) --connections_[ends[i]].full;
  for (uint32_t i = f.receives; i < uint32_t{f.receives} + f.sends; ++i) --connections_[ends[i]].free;
  s.busy = true;
  s.begun = events_.now();
  const uint64_t before = s.tile * p_.tile_bytes();
  const auto in_tile = [&](uint64_t length) {
    return length > before ? std::min(length - before, p_.tile_bytes()) : 0;
  };
  s.bytes = f.pieces == 1 ? in_tile(f.longest) : 0;
  for (uint32_t j = 0; j < f.pieces && f.pieces > 1; ++j) s.bytes += in_tile(p_.lengths[f.first_length + j]);
  const uint64_t overhead = ticks(costs_.step_us);
  if (overhead > 0)
    events_.add(events_.now() + overhead, {What::begin, channel});
  else
    begin(channel);
}

void SimulationRun::begin(uint32_t channel) {
  ChannelState& s = channels_[channel];
  const FlatStep& f = step(s);
  s.outstanding = 1;  // this one, until all has been started
  if (s.bytes > 0) {
    const auto bytes = static_cast<double>(s.bytes);
    const double work = bytes * f.work;
    // No faster than the channel makes what flows.
    const double most = f.work > 0 ? costs_.channel_gb_per_s / f.work : SimCosts::kUnlimited;
    const uint32_t before = s.outstanding;
    const auto flow = [&](uint32_t number, double amount, double at_most) {
      ++s.outstanding;
      start_flow(number, amount, at_most);
    };
    const uint32_t* ends = p_.ends.data() + f.first_end;
    for (uint32_t i = f.receives; i < uint32_t{f.receives} + f.sends; ++i) {
      const ConnectionState& c = connections_[ends[i]];
      if (c.flow != SimulationLayout::kNone && !c.by_proxy) flow(c.flow, bytes, most);
    }
    for (uint32_t i = 0; i < f.windows; ++i)
      if (const uint32_t w = layout_.window_flow[p_.windows[f.first_window + i]];
          w != SimulationLayout::kNone)
        flow(w, bytes, most);
    if (const uint32_t w = layout_.work_flow[channel]; work > 0 && w != SimulationLayout::kNone)
      flow(w, work, costs_.channel_gb_per_s);
    if (s.outstanding == before && work > 0 && costs_.channel_gb_per_s < SimCosts::kUnlimited) {
      ++s.outstanding;
      events_.add(events_.now() + duration(work, costs_.channel_gb_per_s), {What::timer, channel});
    }
  }
  part_done(channel);
}

void SimulationRun::end(uint32_t channel) {
  ChannelState& s = channels_[channel];
  const FlatStep& f = step(s);
  const uint64_t now = events_.now();
  const uint32_t* ends = p_.ends.data() + f.first_end;
  for (uint32_t i = 0; i < f.receives; ++i)
    events_.add(now + connections_[ends[i]].latency, {What::credit, ends[i]});
  for (uint32_t i = f.receives; i < uint32_t{f.receives} + f.sends; ++i) {
    const ConnectionState& c = connections_[ends[i]];
    if (!c.by_proxy || c.flow == SimulationLayout::kNone) {
      events_.add(now + c.latency, {What::arrival, ends[i]});
      continue;
    }
    queues_[ends[i]].push_back(s.bytes);
    if (queues_[ends[i]].size() == 1) send_next(ends[i]);
  }
  steps_ += p_.channels[channel].members;
  if (options_.log) {
    const FlatChannel& c = p_.channels[channel];
    log_.push_back({microseconds(s.begun), microseconds(now), c.rank, c.number,
                    static_cast<int>(s.loop - c.first_loop), static_cast<int>(s.at - p_.loops[s.loop].first),
                    s.tile, s.bytes});
  }
  s.busy = false;
  s.finish = now;
  ++s.at;
  find_step(channel);
  ready_.push_back(channel);
}

void SimulationRun::start_flow(uint32_t flow, double bytes, double most) {
  flows_[flow].carried += bytes;
  const uint32_t group = shares_.start(flow, most);
  if (group >= groups_.size()) groups_.resize(group + 1);
  Group& g = groups_[group];
  go_on(group);
  g.endings.push_back({g.served + bytes, flow});
  std::push_heap(g.endings.begin(), g.endings.end());
}

// Brings the count to now; what ends next is planned when shares are known.
void SimulationRun::go_on(uint32_t group) {
  Group& g = groups_[group];
  if (g.endings.empty())
    g.served = 0;  // small numbers are exact
  else
    g.served += static_cast<double>(events_.now() - g.since) * 1e-3 * g.rate;
  g.since = events_.now();
  if (g.touched) return;
  g.touched = true;
  touched_.push_back(group);
}

void SimulationRun::plan_end(uint32_t group) {
  Group& g = groups_[group];
  g.touched = false;
  const uint64_t end = g.endings.empty()
                           ? UINT64_MAX
                           : g.since + duration(std::max(g.endings.front().served - g.served, 0.0), g.rate);
  if (end == g.end) return;
  g.end = end;
  if (end != UINT64_MAX) events_.add(end, {What::flow_end, group});
}

void SimulationRun::share() {
  shares_.update([&](uint32_t group) {
    go_on(group);
    groups_[group].rate = shares_.rate(group);
  });
  for (const uint32_t group : touched_) plan_end(group);
  touched_.clear();
}

void SimulationRun::flows_end(uint32_t group) {
  Group& g = groups_[group];
  // Only the last word on when it ends counts.
  if (g.end != events_.now()) return;
  g.end = UINT64_MAX;
  go_on(group);
  ended_.clear();
  const double reached = g.served + kRounding * 1e-3 * g.rate;
  while (!g.endings.empty() && g.endings.front().served <= reached) {
    ended_.push_back(g.endings.front().flow);
    std::pop_heap(g.endings.begin(), g.endings.end());
    g.endings.pop_back();
  }
  for (const uint32_t f : ended_) flow_ended(f);
}

void SimulationRun::flow_ended(uint32_t flow) {
  const Flow& f = flows_[flow];
  shares_.stop(flow);
  if (!f.by_proxy) return part_done(f.owner);
  events_.add(events_.now() + connections_[f.owner].latency, {What::arrival, f.owner});
  queues_[f.owner].erase(queues_[f.owner].begin());
  send_next(f.owner);
}

void SimulationRun::send_next(uint32_t connection) {
  const ConnectionState& c = connections_[connection];
  std::vector<uint64_t>& queue = queues_[connection];
  while (!queue.empty()) {
    if (queue.front() > 0)
      return start_flow(c.flow, static_cast<double>(queue.front()), SimCosts::kUnlimited);
    events_.add(events_.now() + c.latency, {What::arrival, connection});
    queue.erase(queue.begin());
  }
}

void SimulationRun::take(const Occurrence& o) {
  switch (o.what) {
    case What::launch:
      return launch();
    case What::begin:
      return begin(o.number);
    case What::timer:
      return part_done(o.number);
    case What::flow_end:
      return flows_end(o.number);
    case What::arrival:
      ++connections_[o.number].full;
      wake(connections_[o.number].receiver, o.number);
      return;
    case What::credit:
      ++connections_[o.number].free;
      wake(connections_[o.number].sender, o.number);
      return;
  }
}

void SimulationRun::launch() {
  for (uint32_t c = 0; c < channels_.size(); ++c) {
    channels_[c].busy = false;
    channels_[c].finish = events_.now();
    find_step(c);
    ready_.push_back(c);
  }
}

bool SimulationRun::run() {
  for (ChannelState& c : channels_) c.busy = true;
  events_.add(ticks(costs_.launch_us), {What::launch, 0});
  while (!events_.empty()) {
    events_.advance();
    for (Occurrence o; events_.next(o);) {
      take(o);
      while (!ready_.empty()) {
        const uint32_t c = ready_.back();
        ready_.pop_back();
        try_start(c);
      }
    }
    share();
  }
  return stuck() < 0;
}

int SimulationRun::stuck() const {
  for (size_t c = 0; c < channels_.size(); ++c)
    if (channels_[c].busy || channels_[c].step != UINT32_MAX) return static_cast<int>(c);
  return -1;
}

std::string SimulationRun::waits_for(int channel) const {
  const FlatStep& f = step(state(channel));
  for (uint32_t i = 0; i < uint32_t{f.receives} + f.sends; ++i) {
    const uint32_t number = p_.ends[f.first_end + i];
    const FlatConnection& c = p_.connections[number];
    if (i < f.receives && connections_[number].full == 0)
      return fmt::format("a message from rank {} on lane {}", c.from, c.lane);
    if (i >= f.receives && connections_[number].free == 0)
      return fmt::format("one of {} slots to rank {} on lane {}", costs_.slots, c.to, c.lane);
  }
  return "nothing";
}

}  // namespace muster
