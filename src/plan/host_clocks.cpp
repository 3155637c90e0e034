#include "plan/host_clocks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <unordered_map>

#include "base/error.h"

namespace muster {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Of one direction between two ranks; messages come in the order in which they were sent.
struct Connection {
  std::vector<double> arrivals;
  size_t taken = 0;
};

struct Action {
  StepTime time;
  std::vector<uint32_t> receives, sends;  // connections
};

struct ClockedChannel {
  std::vector<std::vector<Action>> loops;
};

struct Cursor {
  size_t loop = 0, step = 0;
  int tile = 0;
};

struct Rank {
  std::vector<ClockedChannel> channels;
  std::vector<Cursor> cursors;
  size_t unfinished = 0;  // channels of this call
  int call = -1;          // -1: not begun
};

struct Core {
  std::vector<size_t> ranks;  // that aren't finished
  size_t current = 0;
  bool stuck = false;  // until a message is sent
  ClockReading clock;
};

class Clocks {
 public:
  Clocks(const std::vector<Program>& programs, int calls, int tiles, const ClockRules& rules)
      : calls_(calls), tiles_(tiles), rules_(rules), ranks_(programs.size()) {
    for (size_t r = 0; r < programs.size(); ++r) ranks_[r].channels = flatten(programs[r]);
    cores_.resize(std::min(programs.size(), static_cast<size_t>(std::max(1, rules.cores))));
    for (size_t r = 0; r < programs.size(); ++r) cores_[r % cores_.size()].ranks.push_back(r);
  }

  std::vector<ClockReading> run() {
    while (Core* const core = next_core()) {
      Rank& rank = ranks_[core->ranks[core->current]];
      if (rank.call < 0) begin_call(*core, rank);
      if (!advance(*core, rank)) {
        leave(*core);
      } else if (rank.unfinished == 0) {
        end_call(*core, rank);
      }
    }
    std::vector<ClockReading> readings;
    for (const Core& c : cores_) readings.push_back(c.clock);
    return readings;
  }

 private:
  std::vector<ClockedChannel> flatten(const Program& p) {
    std::vector<ClockedChannel> channels;
    for (const Channel& from : p.channels) {
      ClockedChannel& to = channels.emplace_back();
      for (const Loop& l : from.loops) {
        std::vector<Action>& loop = to.loops.emplace_back();
        for (const Step& s : l.steps) {
          Action a;
          a.time = rules_.step(p, s);
          if (a.time.messages_us < 0) continue;
          for (const Ref& r : s.sources)
            if (r.kind == Ref::Kind::slot) a.receives.push_back(connection(r.peer, p.rank, r.lane));
          for (const Ref& r : s.destinations)
            if (r.kind == Ref::Kind::slot) a.sends.push_back(connection(p.rank, r.peer, r.lane));
          loop.push_back(std::move(a));
        }
      }
    }
    return channels;
  }

  uint32_t connection(int from, int to, uint16_t lane) {
    const uint64_t key = static_cast<uint64_t>(from) << 40 | static_cast<uint64_t>(to) << 16 | lane;
    const auto [it, made] = numbers_.try_emplace(key, static_cast<uint32_t>(connections_.size()));
    if (made) connections_.emplace_back();
    return it->second;
  }

  // That with the earliest clock; nullptr: all have finished.
  Core* next_core() {
    Core* next = nullptr;
    bool left = false;
    for (Core& c : cores_) {
      if (c.ranks.empty()) continue;
      left = true;
      if (!c.stuck && (!next || c.clock.end_us < next->clock.end_us)) next = &c;
    }
    if (left && !next)
      fail(Result::internal_error, "programs of {} ranks wait for each other", ranks_.size());
    return next;
  }

  void begin_call(Core& core, Rank& rank) {
    rank.call = 0;
    core.clock.end_us += rules_.call_us;
    core.clock.messages_us += rules_.call_us;
    start(rank);
  }

  void start(Rank& rank) {
    rank.cursors.assign(rank.channels.size(), {});
    rank.unfinished = 0;
    for (size_t c = 0; c < rank.channels.size(); ++c)
      rank.unfinished += settle(rank.channels[c], rank.cursors[c]);
  }

  void end_call(Core& core, Rank& rank) {
    if (++rank.call < calls_) {
      core.clock.end_us += rules_.call_us;
      core.clock.messages_us += rules_.call_us;
      start(rank);
      return;
    }
    core.ranks.erase(core.ranks.begin() + static_cast<std::ptrdiff_t>(core.current));
    if (core.current == core.ranks.size()) core.current = 0;
  }

  // Puts the cursor on an action; false: the channel is finished.
  bool settle(const ClockedChannel& channel, Cursor& at) const {
    for (; at.loop < channel.loops.size(); ++at.loop, at.tile = 0, at.step = 0) {
      if (at.step < channel.loops[at.loop].size()) return true;
      at.step = 0;
      if (!channel.loops[at.loop].empty() && ++at.tile < tiles_) return true;
    }
    return false;
  }

  // When the action's messages are there.
  double ready_at(const Action& a) const {
    double at = 0;
    for (const uint32_t i : a.receives) {
      const Connection& c = connections_[i];
      at = std::max(at, c.taken < c.arrivals.size() ? c.arrivals[c.taken] : kNever);
    }
    return at;
  }

  // Takes one step that can be taken now, or finds the call without any; false: there is none yet.
  bool advance(Core& core, Rank& rank) {
    if (rank.unfinished == 0) return true;
    for (size_t c = 0; c < rank.channels.size(); ++c) {
      Cursor& at = rank.cursors[c];
      if (at.loop == rank.channels[c].loops.size()) continue;
      const Action& a = rank.channels[c].loops[at.loop][at.step];
      if (ready_at(a) > core.clock.end_us) continue;
      take(core, a);
      ++at.step;
      if (!settle(rank.channels[c], at)) --rank.unfinished;
      return true;
    }
    return false;
  }

  void take(Core& core, const Action& a) {
    core.clock.end_us += a.time.messages_us + (rules_.bytes_apart ? 0 : a.time.bytes_us);
    core.clock.messages_us += a.time.messages_us;
    core.clock.bytes_us += a.time.bytes_us;
    for (const uint32_t i : a.receives) ++connections_[i].taken;
    for (const uint32_t i : a.sends)
      connections_[i].arrivals.push_back(core.clock.end_us + rules_.hand_over_us);
    if (!a.sends.empty())
      for (Core& c : cores_) c.stuck = false;
  }

  // When the rank can go on, as far as is known.
  double ready_at(const Rank& rank) const {
    if (rank.call < 0) return 0;
    double at = kNever;
    for (size_t c = 0; c < rank.channels.size(); ++c)
      if (rank.cursors[c].loop < rank.channels[c].loops.size())
        at = std::min(at, ready_at(rank.channels[c].loops[rank.cursors[c].loop][rank.cursors[c].step]));
    return at;
  }

  // The current rank of the core waits. Ranks have turns one after the other, each as long as it takes to see
  // that there is nothing to do, until one can go on. A rank with a core of its own just waits.
  void leave(Core& core) {
    const size_t n = core.ranks.size();
    double first = kNever;
    for (const size_t r : core.ranks) first = std::min(first, ready_at(ranks_[r]));
    core.stuck = first == kNever;
    if (core.stuck) return;
    ClockReading& clock = core.clock;
    const double turn = n > 1 ? rules_.turn_us : 0;
    if (turn <= 0) {
      clock.end_us = std::max(clock.end_us, first);
    } else {
      const double rounds = std::floor(std::max(0.0, first - clock.end_us) / (static_cast<double>(n) * turn));
      clock.end_us += rounds * static_cast<double>(n) * turn;
      clock.turns_us += rounds * static_cast<double>(n) * turn;
    }
    for (size_t turns = 0; turns <= 2 * n; ++turns) {
      if (turns > 0) {
        core.current = (core.current + 1) % n;
        clock.end_us += turn;
        clock.turns_us += turn;
      }
      if (ready_at(ranks_[core.ranks[core.current]]) <= clock.end_us) return;
    }
  }

  const int calls_, tiles_;
  const ClockRules& rules_;
  std::vector<Rank> ranks_;
  std::vector<Core> cores_;
  std::vector<Connection> connections_;
  std::unordered_map<uint64_t, uint32_t> numbers_;
};

}  // namespace

std::vector<ClockReading> run_clocks(const std::vector<Program>& ranks, int calls, int tiles,
                                     const ClockRules& rules) {
  return Clocks(ranks, calls, tiles, rules).run();
}

}  // namespace muster
