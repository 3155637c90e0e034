#include "plan/simulation_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace muster {

namespace {

constexpr double kTicksPerUs = 1e6;  // a tick is a picosecond
// What is so near its end, but for rounding, is there.
constexpr double kRounding = 0.01;  // ticks

uint64_t ticks(double us) { return static_cast<uint64_t>(std::llround(us * kTicksPerUs)); }
double microseconds(uint64_t t) { return static_cast<double>(t) / kTicksPerUs; }
// Of so many bytes at a rate in GB/s, which is bytes per nanosecond; never 0.
uint64_t duration(double bytes, double gb_per_s) {
  return std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(bytes / gb_per_s * 1e3)));
}

}  // namespace

uint32_t SimulationRun::add_flow(std::vector<uint32_t> route, uint32_t owner) {
  routes_.push_back(std::move(route));
  flows_.push_back({owner});
  return static_cast<uint32_t>(flows_.size() - 1);
}

void SimulationRun::lay_out() {
  const auto resources = network_.resources();
  const int n = network_.ranks();
  // All channels that one stands for share alike, so each has its part of what there is.
  const double share = 1.0 / call_.channels;
  capacities_.resize(resources);
  for (uint32_t r = 0; r < resources; ++r) capacities_[r] = network_.gb_per_s(r) * share;
  const bool own = costs_.rank_gb_per_s < SimCosts::kUnlimited;
  if (own) capacities_.insert(capacities_.end(), static_cast<size_t>(n), costs_.rank_gb_per_s * share);

  for (const FlatConnection& c : p_.connections) {
    const Route r = network_.route(c.from, c.to);
    const LinkCosts& l = costs_.links[static_cast<size_t>(r.link_class)];
    ConnectionState s;
    s.free = costs_.slots;
    s.latency = ticks(r.latency_us + l.latency_us);
    s.by_proxy = l.by_proxy;
    s.sender = c.sender;
    s.receiver = c.receiver;
    if (!r.resources.empty()) {
      s.flow = add_flow(r.resources, s.by_proxy ? static_cast<uint32_t>(connections_.size()) : c.sender);
      flows_.back().by_proxy = s.by_proxy;
    }
    connections_.push_back(s);
  }
  queues_.resize(connections_.size());
  for (const FlatWindow& w : p_.window_paths) {
    Route r = network_.route(w.from, w.to);
    window_flow_.push_back(r.resources.empty() ? UINT32_MAX : add_flow(std::move(r.resources), w.channel));
  }
  for (size_t c = 0; c < p_.channels.size(); ++c) {
    const FlatChannel& f = p_.channels[c];
    std::vector<uint32_t> work = network_.work(f.rank);
    if (own) work.push_back(resources + static_cast<uint32_t>(f.rank));
    work_flow_.push_back(work.empty() ? UINT32_MAX : add_flow(std::move(work), static_cast<uint32_t>(c)));
    ChannelState s;
    s.loop = f.first_loop;
    if (f.first_loop < f.last_loop) {
      s.at = p_.loops[f.first_loop].first;
      s.last = p_.loops[f.first_loop].last;
    }
    channels_.push_back(s);
  }
  for (const std::vector<uint32_t>& route : routes_)
    for (const uint32_t r : route)
      if (!(capacities_[r] > 0))
        fail(Result::invalid_argument, "{} is used, but its rate is unknown", network_.resource(r).name);
  shares_.emplace(capacities_, routes_);
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
      if (c.flow != UINT32_MAX && !c.by_proxy) flow(c.flow, bytes, most);
    }
    for (uint32_t i = 0; i < f.windows; ++i)
      if (const uint32_t w = window_flow_[p_.windows[f.first_window + i]]; w != UINT32_MAX)
        flow(w, bytes, most);
    if (work > 0 && work_flow_[channel] != UINT32_MAX)
      flow(work_flow_[channel], work, costs_.channel_gb_per_s);
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
    if (!c.by_proxy || c.flow == UINT32_MAX) {
      events_.add(now + c.latency, {What::arrival, ends[i]});
      continue;
    }
    queues_[ends[i]].push_back(s.bytes);
    if (queues_[ends[i]].size() == 1) send_next(ends[i]);
  }
  ++steps_;
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
  const uint32_t group = shares_->start(flow, most);
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
  shares_->update([&](uint32_t group) {
    go_on(group);
    groups_[group].rate = shares_->rate(group);
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
  shares_->stop(flow);
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

Simulation SimulationRun::result() const {
  Simulation r;
  r.finish_us.assign(static_cast<size_t>(network_.ranks()), microseconds(ticks(costs_.launch_us)));
  for (size_t c = 0; c < channels_.size(); ++c) {
    double& finish = r.finish_us[static_cast<size_t>(p_.channels[c].rank)];
    finish = std::max(finish, microseconds(channels_[c].finish));
  }
  for (const double f : r.finish_us) r.time_us = std::max(r.time_us, f);
  std::vector<double> carried(capacities_.size());
  for (size_t f = 0; f < flows_.size(); ++f)
    for (const uint32_t i : routes_[f]) carried[i] += flows_[f].carried;
  const uint32_t shared = network_.resources();
  for (uint32_t i = 0; i < carried.size(); ++i) {
    if (carried[i] == 0) continue;
    Simulation::Use use;
    use.resource = i < shared ? network_.resource(i)
                              : Resource{Resource::Kind::core, topology::LinkKind::cpu,
                                         fmt::format("rank {}: copies", i - shared), costs_.rank_gb_per_s};
    use.bytes = carried[i] * call_.channels;
    r.uses.push_back(std::move(use));
  }
  r.steps = steps_ * static_cast<uint64_t>(call_.channels);
  r.log = log_;
  return r;
}

}  // namespace muster
