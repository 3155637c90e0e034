#include "plan/host_price.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/math.h"
#include "plan/host_clocks.h"
#include "plan/units.h"
#include "program/cut.h"
#include "program/place.h"

namespace muster {
namespace {

// Of connections (transports/connection.h): bytes of a message that fit its line, and half of it; messages
// after which the sender is told that there is room again.
constexpr size_t kBytesInLine = 32, kBytesInHalfLine = 16;
constexpr double kCreditMessages = 8;
constexpr uint64_t kDescriptorBytes =
    24;  // that each rank tells the others before windows are used (src/comm/places.cpp)

// What a connection's ring has by the longest message.
double ring_bytes(double message, double slot) {
  return message <= kBytesInLine ? 0 : message <= 1024 ? 8192 : message <= 8192 ? 49152 : 33 * slot;
}

// Element types differ in what combining them takes: 16-bit floats are widened and rounded, 8-bit ones more
// so.
std::string_view kind_of(DataType t) {
  switch (t) {
    case DataType::float16:
    case DataType::bfloat16:
      return "half";
    case DataType::float8_e4m3:
    case DataType::float8_e5m2:
      return "float8";
    default:
      return "";
  }
}

// Microseconds per byte.
struct BytePrices {
  double local, slot, load, store, combine;

  // Shares outside the cache: of the caller's memory, of the connections'.
  BytePrices(const Constants& k, DataType type, double buffers_outside, double slots_outside) {
    const auto price = [&](const char* name, double outside) {
      const double in = 1 / k(name), out = 1 / k(fmt::format("{}.memory", name));
      return (in + outside * std::max(0.0, out - in)) /
             kBytesPerMicrosecond;  // never cheaper outside the cache
    };
    local = price("host.local", buffers_outside);
    slot = price("host.slot", slots_outside);
    load = price("host.window", buffers_outside);
    store = price("host.window.store", buffers_outside);
    combine = combine_us_per_byte(type, k);
  }
  double of(const Ref& r, bool is_source) const {
    switch (r.kind) {
      case Ref::Kind::local:
        return local;
      case Ref::Kind::slot:
        return slot;
      case Ref::Kind::window:
        return is_source ? load : store;
    }
    return 0;
  }
};

// Into how many parts channels cut each chunk.
size_t parts_of(const Program& p) { return p.channels.empty() ? 1 : p.channels[0].parts; }

class StepPrices {
 public:
  // `full_tile`: each pass has so many bytes of each chunk; 0: all of each chunk as the call cuts them.
  StepPrices(const CallShape& call, const Constants& k, const Program& p, uint64_t full_tile,
             const BytePrices& bytes)
      : element_(size_of(call.type)),
        chunks_(splits_count(call.coll) ? p.chunks : 1),
        cut_(call.count, chunks_, element_),
        full_tile_(full_tile),
        message_(k("host.message")),
        ring_(k("host.ring")),
        bytes_(bytes) {}

  StepTime operator()(const Program& p, const Step& s) const {
    double bytes = 0;
    for (uint32_t j = 0; j < s.pieces; ++j)
      bytes += static_cast<double>(piece((s.extent + j) % static_cast<uint32_t>(chunks_), parts_of(p)));
    if (s.pieces > 0 && bytes == 0) return {-1, 0};
    const bool in_line = bytes <= kBytesInLine;
    StepTime t;
    const auto add = [&](const Ref& r, bool is_source) {
      const bool is_slot = r.kind == Ref::Kind::slot;
      if (is_slot) t.messages_us += in_line ? message_ : message_ + ring_;
      // Loads of this rank's own part overlap with those of the others'.
      const bool hidden = is_source && s.sources.size() > 1 && r.kind == Ref::Kind::local;
      if (!hidden && !(is_slot && in_line)) t.bytes_us += bytes * bytes_.of(r, is_source);
    };
    for (const Ref& r : s.sources) add(r, true);
    for (const Ref& r : s.destinations) add(r, false);
    if (s.sources.size() > 1)
      t.bytes_us += static_cast<double>(s.sources.size() - 1) * bytes * bytes_.combine;
    return t;
  }

 private:
  uint64_t piece(uint32_t chunk, size_t channels) const {
    return full_tile_ ? full_tile_ : ceil_div(cut_.length(chunk) * element_, channels);
  }

  size_t element_;
  uint64_t chunks_;
  Cut cut_;
  uint64_t full_tile_;
  double message_, ring_;
  const BytePrices& bytes_;
};

HostPrice operator+(const HostPrice& a, const HostPrice& b) {
  return {a.us + b.us, a.messages_us + b.messages_us, a.bytes_us + b.bytes_us, a.turns_us + b.turns_us};
}
HostPrice operator*(double f, const HostPrice& p) {
  return {f * p.us, f * p.messages_us, f * p.bytes_us, f * p.turns_us};
}

// What passes through the connections of a call.
struct Traffic {
  double connections = 0;  // that are used
  double messages = 0;     // in each pass through the one that is used most
};

Traffic traffic_of(const std::vector<Program>& ranks) {
  Traffic t;
  for (const Program& p : ranks) {
    std::map<std::pair<int, int>, double> sent;  // by peer and lane
    for (const Channel& c : p.channels)
      for (const Loop& l : c.loops)
        for (const Step& s : l.steps)
          for (const Ref& r : s.destinations)
            if (r.kind == Ref::Kind::slot) t.messages = std::max(t.messages, ++sent[{r.peer, r.lane}]);
    t.connections += static_cast<double>(sent.size());
  }
  return t;
}

class Pricing {
 public:
  Pricing(const Algorithm& a, const CallShape& call, const PlanInputs& in, const Constants& k)
      : call_(call), in_(in), k_(k) {
    Choice choice;
    choice.algorithm = &a;
    choice.channels = a.whole ? 1 : channels_of(call, in);
    for (const auto& custom : in.custom)
      if (&custom->algorithm == &a) choice.custom = custom;
    for (int r = 0; r < in.nranks; ++r)
      ranks_.push_back(program_of(choice, {in.nranks, r, call.root, in.placement.get()}));
    tile_ = a.windows ? kWindowTile : std::max<size_t>(1, in.slot_bytes / (choice.custom ? choice.custom->pieces : 1));
    traffic_ = traffic_of(ranks_);
    const uint64_t chunks = splits_count(call.coll) ? ranks_[0].chunks : 1;
    longest_ =
        static_cast<double>(Cut(call.count, chunks, size_of(call.type)).longest() * size_of(call.type)) /
        static_cast<double>(parts_of(ranks_[0]));
  }

  HostPrice total() const {
    const double tiles = longest_ / static_cast<double>(tile_);
    if (tiles <= 1) return of_tiles(1, 0);
    // Straight lines between whole numbers of tiles, and on beyond the last.
    const int low = tiles < 2 ? 1 : 2, high = 2 * low;
    const HostPrice a = of_tiles(low, tile_), b = of_tiles(high, tile_);
    const double along = (tiles - low) / (high - low);
    return (1 - along) * a + along * b;
  }

 private:
  BytePrices byte_prices() const {
    const double buffers = host_footprint(call_, in_.nranks), cache = static_cast<double>(in_.cache_bytes);
    const double message = std::min(longest_, static_cast<double>(tile_));
    const double rings = traffic_.connections * ring_bytes(message, static_cast<double>(in_.slot_bytes));
    return {k_, call_.type, share_outside_cache(buffers, cache), share_outside_cache(buffers + rings, cache)};
  }

  // A call among many alike, all of whose chunks are `tiles` tiles of full_tile bytes, or as the call cuts
  // them.
  HostPrice of_tiles(int tiles, uint64_t full_tile) const {
    const BytePrices bytes = byte_prices();
    const StepPrices prices(call_, k_, ranks_[0], full_tile, bytes);
    ClockRules rules;
    rules.cores = in_.cores;
    rules.call_us = k_("host.call");
    rules.hand_over_us = k_("host.hand_over");
    rules.turn_us = k_("host.turn");
    rules.bytes_apart = in_.nranks > in_.cores;
    rules.step = [&](const Program& p, const Step& s) { return prices(p, s); };
    const int calls_before = tiles > 1 ? 1 : 2, calls = tiles > 1 ? 3 : 8;
    const std::vector<ClockReading> first = run_clocks(ranks_, calls_before, tiles, rules),
                                    last = run_clocks(ranks_, calls, tiles, rules);
    const auto ends_last = [](const std::vector<ClockReading>& cores) {
      return std::max_element(cores.begin(), cores.end(), [](const ClockReading& a, const ClockReading& b) {
        return a.end_us < b.end_us;
      });
    };
    const ClockReading& to = *ends_last(last);
    const ClockReading& from = first[static_cast<size_t>(&to - last.data())];  // the same core's
    HostPrice p{to.end_us - ends_last(first)->end_us, to.messages_us - from.messages_us,
                to.bytes_us - from.bytes_us, to.turns_us - from.turns_us};
    if (rules.bytes_apart) {
      p.bytes_us = 0;
      for (size_t c = 0; c < last.size(); ++c)
        p.bytes_us = std::max(p.bytes_us, last[c].bytes_us - first[c].bytes_us);
      p.us += p.bytes_us;
    }
    p = 1.0 / (calls - calls_before) * p;
    if (rules.bytes_apart) {
      // A sender that nobody answers is ahead by so many messages; then all ranks of its core have to have
      // their turns.
      const double ahead = longest_ <= kBytesInHalfLine ? 2 * kCreditMessages : kCreditMessages;
      const double least = std::ceil(static_cast<double>(in_.nranks) / in_.cores) * rules.turn_us *
                           traffic_.messages * tiles / ahead;
      if (p.turns_us < least) {
        p.us += least - p.turns_us;
        p.turns_us = least;
      }
    }
    return p;
  }

  const CallShape& call_;
  const PlanInputs& in_;
  const Constants& k_;
  uint64_t tile_ = 0;
  std::vector<Program> ranks_;
  Traffic traffic_;
  double longest_ = 0;  // bytes of the longest chunk, per channel
};

}  // namespace

double share_outside_cache(double bytes, double cache) {
  return std::clamp((bytes / cache - kFillsCache) / (kLeavesCache - kFillsCache), 0.0, 1.0);
}

double combine_us_per_byte(DataType type, const Constants& k) {
  return 1 / k.of("host.combine", kind_of(type)) / kBytesPerMicrosecond;
}

double host_footprint(const CallShape& c, int nranks) {
  const double n = nranks;
  const double part = static_cast<double>(c.count) * static_cast<double>(size_of(c.type));
  switch (c.coll) {
    case Coll::all_reduce:
      return 2 * n * part;
    case Coll::broadcast:
    case Coll::reduce:
      return (n + 1) * part;
    case Coll::reduce_scatter:
    case Coll::all_gather:
      return n * (n + 1) * part;
    case Coll::all_to_all:
      return 2 * n * n * part;
    default:
      return 2 * n * part;
  }
}

HostPrice host_model_price(const Algorithm& a, const CallShape& call, const PlanInputs& in, const Constants& k) {
  HostPrice price = Pricing(a, call, in, k).total();
  // While there is less than a cache line for each chunk some are empty. On shared cores more messages may
  // then cost fewer turns, but no call is taken to be cheaper than a smaller one.
  if (splits_count(call.coll) && in.nranks > in.cores) {
    CallShape smaller = call;
    for (int lines = 1; lines <= in.nranks; lines *= 2) {
      smaller.count = static_cast<uint64_t>(lines) * kCacheLine / size_of(call.type);
      if (smaller.count >= call.count) break;
      if (const HostPrice other = Pricing(a, smaller, in, k).total(); other.us > price.us) price = other;
    }
  }
  if (a.windows && in.nranks > 1) {
    // Ranks tell each other where their buffers are.
    const CallShape exchange{Coll::all_gather, DataType::uint8, RedOp::sum, 0, kDescriptorBytes};
    PlanInputs alone = in;
    alone.channels = 1;
    price = price + Pricing(*find_algorithm(Coll::all_gather, "direct"), exchange, alone, k).total();
    const double call_us = k("host.call");  // is in both
    price.us -= call_us;
    price.messages_us -= call_us;
  }
  return price;
}

HostPrice host_message_price(uint64_t bytes, const PlanInputs& in, const Constants& k) {
  const double all = static_cast<double>(bytes),
               tile = std::min(all, static_cast<double>(std::max<size_t>(1, in.message_bytes)));
  const double outside = share_outside_cache(2 * all * in.nranks, static_cast<double>(in.cache_bytes));
  const BytePrices prices(k, DataType::uint8, outside, outside);
  const double one_side = prices.local + prices.slot;
  const double messages = std::max(1.0, std::ceil(all / tile)),
               sharing = std::max(1.0, static_cast<double>(in.nranks) / std::max(1, in.cores));
  HostPrice p;
  p.messages_us =
      k("host.call") + (messages + 1) * (k("host.message") + (tile > kBytesInLine ? k("host.ring") : 0));
  p.bytes_us = sharing * (all + tile) * one_side;  // both sides at once, but for one tile
  p.turns_us = sharing > 1 ? sharing * k("host.turn") : 0;
  p.us = p.messages_us + p.bytes_us + p.turns_us + k("host.hand_over");
  return p;
}

}  // namespace muster
