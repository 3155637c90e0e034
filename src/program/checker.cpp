// The programs of all ranks, run on symbols. Programs only talk through bounded first-in-first-out
// connections, so one order of running them stands for all.
#include "program/checker.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "program/memory.h"
#include "program/order.h"
#include "program/place.h"
#include "program/symbols.h"
#include "program/violation.h"

namespace muster {

namespace {

struct Message {
  const Step* step;  // the one that sent it
  uint16_t part, parts;
  int tile;
  std::shared_ptr<const std::vector<Value>> values;
  Order::Clock clock;
};

struct Connection {
  int sender, receiver, lane;
  std::deque<Message> messages;
  int waiting =
      -1;  // thread that this connection keeps waiting: the sender when full, the receiver when empty
};

// A channel of a rank, on its way through its steps.
struct Thread {
  int rank, channel;
  size_t loop = 0, step = 0;
  int tile = 0;
  std::vector<Connection*> sources, destinations;  // of the current step, once `entered`
  size_t ready = 0;                                // how many of them were found ready
  bool entered = false;
};

class Run {
 public:
  Run(std::span<const Program> programs, const CheckOptions& options)
      : programs_(programs),
        options_(options),
        symbols_(static_cast<int>(programs.size())),
        memory_(programs, options) {
    for (const Program& p : programs)
      for (size_t c = 0; c < p.channels.size(); ++c) threads_.push_back({p.rank, static_cast<int>(c)});
    if (needs_order(programs)) {
      order_.emplace(threads_.size(), memory_.cells());
      last_use_.resize(programs.size());
    }
  }

  void run() {
    std::vector<int> runnable(threads_.size());
    std::iota(runnable.rbegin(), runnable.rend(), 0);
    while (!runnable.empty()) {
      const int t = runnable.back();
      runnable.pop_back();
      advance(t, runnable);
    }
    check_all_done();
    check_nothing_left();
    check_exits();
  }

  // Every output chunk holds what it should. Returns whether all reductions were made in rank order.
  bool check_results() {
    bool rank_order = true;
    std::unordered_map<size_t, std::pair<int, Symbols::Node>>
        first;  // of an all-reduce: chunk and unit -> rank, value
    for (const Program& p : programs_) {
      memory_.for_each_result(p.rank, [&](const Place& at, uint32_t unit, const Value& found,
                                          const Expected& expected) {
        const Position where{p.rank};
        const auto& name = memory_.name_of(at);
        if (found.node == Symbols::kNothing)
          violation(programs_, where, "expected {} to hold the result, found it not written", name);
        if (found.chunk != expected.chunk || found.unit != unit) {
          violation(programs_, where, "expected chunk {}, unit {} of the data in {}, found chunk {}, unit {}",
                    expected.chunk, unit, name, found.chunk, found.unit);
        }
        if (!reduces(p.coll)) {
          if (found.node != symbols_.plain(expected.rank))
            violation(programs_, where, "expected rank {}'s data in {}, found rank {}'s", expected.rank, name,
                      symbols_.text(found.node));
          return;
        }
        if (!symbols_.finished(found.node))
          violation(programs_, where, "expected a result marked complete in {}, found {}", name,
                    symbols_.text(found.node));
        rank_order = rank_order && symbols_.in_rank_order(found.node);
        if (p.coll != Coll::all_reduce) return;
        const size_t key = size_t{at.chunk} * memory_.units() + unit;
        const auto [other, fresh] = first.try_emplace(key, p.rank, found.node);
        if (!fresh && other->second.second != found.node) {
          violation(programs_, where,
                    "expected the same order of combination in {} as on rank {}, {}, found {}", name,
                    other->second.first, symbols_.text(other->second.second), symbols_.text(found.node));
        }
      });
    }
    return rank_order;
  }

 private:
  const Program& program(int rank) const { return programs_[static_cast<size_t>(rank)]; }
  Thread& thread(int t) { return threads_[static_cast<size_t>(t)]; }
  const Channel& channel_of(const Thread& t) const {
    return program(t.rank).channels[static_cast<size_t>(t.channel)];
  }
  const Step& step_of(const Thread& t) const { return channel_of(t).loops[t.loop].steps[t.step]; }
  static Position position(const Thread& t) {
    return {t.rank, t.channel, static_cast<int>(t.loop), static_cast<int>(t.step)};
  }

  // Threads whose programs can't touch each other's bytes need no clocks: each channel has its own part of
  // all chunks, or its own messages.
  static bool needs_order(std::span<const Program> programs) {
    for (const Program& p : programs) {
      std::set<int> parts;
      std::unordered_map<int, size_t> message_of;
      for (size_t c = 0; c < p.channels.size(); ++c) {
        const Channel& channel = p.channels[c];
        if (p.coll != Coll::send_recv &&
            (channel.parts != p.channels[0].parts || !parts.insert(channel.part).second))
          return true;
        for (const Loop& loop : channel.loops)
          for (const Step& s : loop.steps)
            for (const auto* refs : {&s.sources, &s.destinations})
              for (const Ref& r : *refs) {
                if (r.kind == Ref::Kind::window) return true;
                if (p.coll != Coll::send_recv || r.kind != Ref::Kind::local) continue;
                if (message_of.try_emplace(r.buffer, c).first->second != c) return true;
              }
      }
    }
    return false;
  }

  Connection* connection(int sender, int receiver, int lane) {
    const uint64_t n = programs_.size();
    const uint64_t key = ((static_cast<uint64_t>(sender) * n + static_cast<uint64_t>(receiver)) << 16) |
                         static_cast<uint64_t>(lane);
    auto& c = connections_[key];
    if (!c) c = std::make_unique<Connection>(Connection{sender, receiver, lane, {}, -1});
    return c.get();
  }

  // Skips loops that are over or empty. False: the thread is done.
  bool at_step(Thread& t) const {
    const auto& loops = channel_of(t).loops;
    while (t.loop < loops.size()) {
      if (t.step < loops[t.loop].steps.size()) return true;
      t.step = 0;
      if (loops[t.loop].steps.empty() || ++t.tile >= options_.tiles) {
        t.tile = 0;
        ++t.loop;
      }
    }
    return false;
  }

  bool is_left_out(const Thread& t) const {
    const Step& s = step_of(t);
    const Program& p = program(t.rank);
    if (options_.lengths.empty() || s.pieces == 0 || (t.tile == 0 && is_pairwise(p.coll))) return false;
    for (uint32_t piece = 0; piece < s.pieces; ++piece)
      if (memory_.has_tile((s.extent + piece) % p.chunks, t.tile)) return false;
    return true;
  }

  void enter(Thread& t) {
    const Step& s = step_of(t);
    t.sources.clear();
    t.destinations.clear();
    for (const Ref& r : s.sources)
      if (r.kind == Ref::Kind::slot) t.sources.push_back(connection(r.peer, t.rank, r.lane));
    for (const Ref& r : s.destinations)
      if (r.kind == Ref::Kind::slot) t.destinations.push_back(connection(t.rank, r.peer, r.lane));
    t.ready = 0;
    t.entered = true;
  }

  // The connection that the current step waits for. What was ready stays so: only this thread can change it.
  Connection* blocked_on(Thread& t) const {
    for (; t.ready < t.sources.size(); ++t.ready)
      if (t.sources[t.ready]->messages.empty()) return t.sources[t.ready];
    for (; t.ready < t.sources.size() + t.destinations.size(); ++t.ready) {
      Connection* c = t.destinations[t.ready - t.sources.size()];
      if (c->messages.size() >= static_cast<size_t>(options_.slots)) return c;
    }
    return nullptr;
  }

  void advance(int index, std::vector<int>& runnable) {
    Thread& t = thread(index);
    const auto wake = [&](Connection& c) {
      if (c.waiting < 0 || c.waiting == index) return;
      runnable.push_back(c.waiting);
      c.waiting = -1;
    };
    while (at_step(t)) {
      if (is_left_out(t)) {
        ++t.step;
        continue;
      }
      if (!t.entered) enter(t);
      if (Connection* c = blocked_on(t)) {
        c->waiting = index;
        return;
      }
      execute(index, t, step_of(t));
      for (Connection* c : t.sources) wake(*c);
      for (Connection* c : t.destinations) wake(*c);
      t.entered = false;
      ++t.step;
    }
  }

  void execute(int index, Thread& t, const Step& s) {
    const auto self = static_cast<uint32_t>(index);
    if (order_) order_->tick(self);
    std::vector<Message> received;
    for (Connection* c : t.sources) {
      received.push_back(std::move(c->messages.front()));
      c->messages.pop_front();
      check_message(t, s, *c, received.back());
      if (order_) order_->receive(self, received.back().clock);
    }
    const auto values = std::make_shared<std::vector<Value>>();
    if (s.pieces > 0) {
      compute(self, t, s, received, *values);
      for (const Ref& r : s.destinations)
        if (r.kind != Ref::Kind::slot) store(self, t, s, r, *values);
    }
    if (t.destinations.empty()) return;
    const Channel& channel = channel_of(t);
    const Order::Clock clock = order_ ? order_->send(self) : nullptr;
    for (Connection* c : t.destinations)
      c->messages.push_back({&s, channel.part, channel.parts, t.tile, values, clock});
  }

  void check_message(const Thread& t, const Step& s, const Connection& c, const Message& m) {
    const Channel& channel = channel_of(t);
    const Program& p = program(t.rank);
    if (m.step->pieces != s.pieces || (s.pieces > 0 && m.step->extent % p.chunks != s.extent % p.chunks)) {
      violation(programs_, position(t), "expected {} from rank {} on lane {}, found {}", length_text(p, s),
                c.sender, c.lane, length_text(p, *m.step));
    }
    if (m.part != channel.part || m.parts != channel.parts || m.tile != t.tile) {
      violation(programs_, position(t),
                "expected part {} of {}, tile {} from rank {} on lane {}, found part {} of {}, tile {}",
                channel.part, channel.parts, t.tile, c.sender, c.lane, m.part, m.parts, m.tile);
    }
  }
  static std::string length_text(const Program& p, const Step& s) {
    if (s.pieces == 0) return "a token";
    if (p.chunks == 1) return fmt::format("a message of {} chunks", s.pieces);
    return fmt::format("a message of {} chunks as long as chunk {} and following", s.pieces,
                       s.extent % p.chunks);
  }

  // One value per piece and unit.
  void compute(uint32_t self, const Thread& t, const Step& s, const std::vector<Message>& received,
               std::vector<Value>& values) {
    const Program& p = program(t.rank);
    const auto [first_unit, units] = memory_.units_of(channel_of(t), t.tile);
    values.reserve(size_t{s.pieces} * units);
    std::vector<Symbols::Node> operands(s.sources.size());
    for (uint32_t piece = 0; piece < s.pieces; ++piece) {
      if (!memory_.has_tile((s.extent + piece) % p.chunks, t.tile)) continue;
      for (uint32_t unit = 0; unit < units; ++unit) {
        Value result;
        size_t message = 0;
        for (size_t i = 0; i < s.sources.size(); ++i) {
          const Ref& r = s.sources[i];
          const Value v = r.kind == Ref::Kind::slot ? (*received[message++].values)[values.size()]
                                                    : load(self, t, place_of(p, r, piece), first_unit + unit);
          if (i > 0 && (v.chunk != result.chunk || v.unit != result.unit)) {
            violation(programs_, position(t),
                      "expected chunk {}, unit {} of the data from {}, found chunk {}, unit {}", result.chunk,
                      result.unit, to_string(r), v.chunk, v.unit);
          }
          result = v;
          operands[i] = v.node;
        }
        if (p.coll != Coll::send_recv && result.chunk != (s.extent + piece) % p.chunks) {
          violation(programs_, position(t),
                    "expected data of chunk {}, whose length the step has, found data of chunk {}",
                    (s.extent + piece) % p.chunks, result.chunk);
        }
        std::string why;
        result.node = symbols_.combine(operands, why);
        if (why.empty() && s.finish) result.node = symbols_.finish(result.node, why);
        if (!why.empty()) violation(programs_, position(t), "expected {}", why);
        values.push_back(result);
      }
    }
  }

  Value load(uint32_t self, const Thread& t, const Place& at, uint32_t unit) {
    const size_t cell = memory_.cell(at, unit);
    const bool input = memory_.is_input(at);
    Value v = memory_[cell];
    if (input ? !v.as_input : !v.as_written) {
      violation(
          programs_, position(t), "expected {} in {}, found it {}",
          input ? "the caller's data" : "data written before", memory_.name_of(at),
          input ? "overwritten through the output, which is the same memory in place" : "not written yet");
    }
    // Window programs aren't used with a factor, so what they load from a peer's input counts as weighted.
    if (input && reduces(program(t.rank).coll)) v.node = symbols_.weighted(at.rank);
    if (order_) {
      note_use(self, at.rank, t.rank);
      const auto other =
          order_->read(cell, {self, 0, static_cast<uint32_t>(t.loop), static_cast<uint32_t>(t.step)});
      if (other) unordered(t, memory_.name_of(at), *other);
    }
    return v;
  }

  void store(uint32_t self, const Thread& t, const Step& s, const Ref& r, const std::vector<Value>& values) {
    const auto [first_unit, units] = memory_.units_of(channel_of(t), t.tile);
    size_t i = 0;
    for (uint32_t piece = 0; piece < s.pieces; ++piece) {
      const Program& p = program(t.rank);
      if (!memory_.has_tile((s.extent + piece) % p.chunks, t.tile)) continue;
      const Place at = place_of(p, r, piece);
      if (memory_.is_input(at))
        violation(programs_, position(t), "expected {} to be left alone, found it written",
                  memory_.name_of(at));
      for (uint32_t unit = 0; unit < units; ++unit, ++i) {
        const size_t cell = memory_.cell(at, first_unit + unit);
        if (is_self_copy(t, s, cell, piece, first_unit + unit)) {
          memory_[cell].as_written = true;
          continue;
        }
        if (order_) {
          note_use(self, at.rank, t.rank);
          const auto other =
              order_->write(cell, {self, 0, static_cast<uint32_t>(t.loop), static_cast<uint32_t>(t.step)});
          if (other) unordered(t, memory_.name_of(at), *other);
        }
        memory_[cell] = {values[i].node, values[i].chunk, values[i].unit, false, true};
      }
    }
  }

  // A copy of a place onto itself, as in place: executors don't touch the memory.
  bool is_self_copy(const Thread& t, const Step& s, size_t cell, uint32_t piece, uint32_t unit) const {
    if (s.finish || s.sources.size() != 1 || s.sources[0].raw || s.sources[0].kind == Ref::Kind::slot)
      return false;
    return memory_.cell(place_of(program(t.rank), s.sources[0], piece), unit) == cell;
  }
  [[noreturn]] void unordered(const Thread& t, const std::string& place, const Order::Access& other) {
    const Thread& o = threads_[other.thread];
    violation(
        programs_, position(t),
        "expected its use of {} to come after or before that by {}, found no message that orders them", place,
        text_of(programs_, {o.rank, o.channel, static_cast<int>(other.loop), static_cast<int>(other.step)}));
  }

  // Remembers the last time that `self` used the memory of another rank.
  void note_use(uint32_t self, int owner, int user) {
    if (owner != user) last_use_[static_cast<size_t>(owner)][self] = order_->now(self);
  }

  // No rank leaves while another may still use its buffers.
  void check_exits() {
    if (!order_) return;
    for (size_t owner = 0; owner < last_use_.size(); ++owner) {
      for (const auto& [user, time] : last_use_[owner]) {
        uint32_t seen = 0;
        for (uint32_t t = 0; t < threads_.size(); ++t)
          if (static_cast<size_t>(threads_[t].rank) == owner) seen = std::max(seen, order_->seen(t, user));
        if (seen < time) {
          violation(
              programs_, Position{static_cast<int>(owner)},
              "expected it to end after rank {} is done with its buffers, found no message that tells so",
              threads_[user].rank);
        }
      }
    }
  }

  void check_all_done() {
    int stuck = 0;
    const Thread* first = nullptr;
    for (Thread& t : threads_) {
      if (!at_step(t)) continue;
      ++stuck;
      if (!first) first = &t;
    }
    if (!first) return;
    std::string chain;
    const Thread* t = first;
    for (int hops = 0; t && hops < 4; ++hops) {
      const auto [what, peer] = wait_of(*t);
      if (hops > 0) chain += fmt::format("; {} waits for {}", text_of(programs_, position(*t)), what);
      t = stuck_thread_of(peer);
      if (!t) chain += fmt::format("; rank {} has ended", peer);
      if (t == first) break;
    }
    violation(programs_, position(*first),
              "tile {}: expected {} in the end, found none coming: {} of {} channels are stuck{}",
              first->tile, wait_of(*first).first, stuck, threads_.size(), chain);
  }
  std::pair<std::string, int> wait_of(const Thread& t) const {
    const bool source = t.ready < t.sources.size();
    const Connection& c = source ? *t.sources[t.ready] : *t.destinations[t.ready - t.sources.size()];
    return {fmt::format("{} rank {} on lane {}", source ? "a message from" : "a free slot to",
                        source ? c.sender : c.receiver, c.lane),
            source ? c.sender : c.receiver};
  }
  const Thread* stuck_thread_of(int rank) {
    for (Thread& t : threads_)
      if (t.rank == rank && at_step(t)) return &t;
    return nullptr;
  }

  void check_nothing_left() {
    const Connection* left = nullptr;
    for (const auto& [key, c] : connections_) {
      if (c->messages.empty()) continue;
      if (!left ||
          std::tie(c->sender, c->receiver, c->lane) < std::tie(left->sender, left->receiver, left->lane))
        left = c.get();
    }
    if (!left) return;
    violation(programs_, Position{left->receiver},
              "expected it to receive all that rank {} sends on lane {}, found {} messages left ({})",
              left->sender, left->lane, left->messages.size(), to_string(*left->messages.front().step));
  }

  std::span<const Program> programs_;
  CheckOptions options_;
  Symbols symbols_;
  Memory memory_;
  std::vector<Thread> threads_;
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::optional<Order> order_;
  std::vector<std::map<uint32_t, uint32_t>>
      last_use_;  // by rank: thread of another rank -> when it last used its memory
};

}  // namespace

CheckResult check(std::span<const Program> programs, const CheckOptions& options) {
  try {
    if (options.slots < 1 || options.tiles < 1)
      throw Violation{
          fmt::format("expected at least 1 slot and 1 tile, found {} and {}", options.slots, options.tiles)};
    check_form(programs);
    Run run(programs, options);
    run.run();
    const bool rank_order = run.check_results();
    return {true, {}, rank_order};
  } catch (const Violation& v) {
    return {false, v.message, false};
  }
}

}  // namespace muster
