#include "plan/planner.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/math.h"
#include "plan/host_price.h"
#include "plan/hosts_price.h"
#include "plan/selection.h"

namespace muster {
namespace {

// Thresholds below are crossings measured with scripts/sweep_algorithms.py on a two-core machine.

// Up to here one message per peer beats the two rounds of reduce-scatter and all-gather.
size_t one_shot_limit(int nranks) { return nranks <= 2 ? 16 << 10 : 2 << 10; }
// From here on exchanging where the buffers are costs less than the copies it saves.
constexpr size_t kWindowBytes = 8192;
// The same inside each of several hosts. Two hosts of four ranks on two cores: 64 KiB take 1.1 of the time through slots, 256 KiB 0.6.
constexpr size_t kHostWindowBytes = 128 << 10;
// Root sends to all: fine while it is few and small.
constexpr size_t kFlatBytes = 16 << 10;
// Shorter messages are written through the caches. Longer ones may go past them, if that is faster between these
// cores (store_trial.h).
constexpr size_t kStreamSlots = 4096;
// From here on results are stored into peers' buffers past the caches. Two ranks: at 1 MiB copies take 0.6 of the time and at
// 2 MiB 0.8 through them, reductions 0.95 to 1.06 and 1.12; at 4 MiB it is the same.
constexpr size_t kStreamWindowCopies = 4 << 20, kStreamWindowReductions = 2 << 20;

uint64_t bytes_per_rank(const CallShape& c, int nranks) {
  const uint64_t chunk = c.count * size_of(c.type);
  return splits_count(c.coll) ? chunk : chunk * static_cast<uint64_t>(nranks);
}

struct Pick {
  const char* name;
  std::string reason;
};

Pick by_thresholds(const CallShape& call, const PlanInputs& in) {
  const size_t bytes = call.count * size_of(call.type);
  const int n = in.nranks;
  const bool many = n > kMostDirect;
  switch (call.coll) {
    case Coll::all_reduce:
      if (in.reproducible && many) fail(Result::invalid_usage, "MUSTER_REPRODUCIBLE=1 with {} ranks on one host: {} are the most", n, kMostDirect);
      if (n == 1) return {"direct", "one rank: a copy"};
      if (many && bytes <= kFlatBytes) return {"doubling", fmt::format("{} ranks and few bytes: logarithmically many messages", n)};
      if (many) return {"ring", fmt::format("more than {} ranks: each talks to two", kMostDirect)};
      if (bytes <= one_shot_limit(n)) return {"one_shot", fmt::format("up to {} bytes one round of messages is fastest", one_shot_limit(n))};
      return {"direct", fmt::format("above {} bytes each rank combines one slice", one_shot_limit(n))};
    case Coll::reduce_scatter:
      if (in.reproducible && many) fail(Result::invalid_usage, "MUSTER_REPRODUCIBLE=1 with {} ranks on one host: {} are the most", n, kMostDirect);
      if (many) return {"ring", fmt::format("more than {} ranks: each talks to two", kMostDirect)};
      return {"direct", "each rank combines its shard in one step"};
    case Coll::all_gather:
      if (many) return {"ring", fmt::format("more than {} ranks: each talks to two", kMostDirect)};
      return {"direct", "one message to each rank"};
    case Coll::broadcast:
      if (n <= 2) return {"direct", "one message"};
      if (bytes <= kFlatBytes && n <= 8) return {"direct", fmt::format("up to {} bytes to few ranks the root sends all itself", kFlatBytes)};
      if (bytes <= kFlatBytes) return {"binomial", fmt::format("{} ranks and few bytes: a tree of logarithmic depth", n)};
      return {"chain", fmt::format("above {} bytes tiles follow each other from rank to rank, and each sends once", kFlatBytes)};
    case Coll::reduce:
      if (in.reproducible && many) fail(Result::invalid_usage, "MUSTER_REPRODUCIBLE=1 with {} ranks on one host: {} are the most", n, kMostDirect);
      if (many) return {bytes <= kFlatBytes ? "binomial" : "chain", fmt::format("more than {} ranks: each talks to few", kMostDirect)};
      if (n <= 2 || bytes <= kFlatBytes) return {"direct", "the root combines all in one step"};
      return {"scatter_gather", fmt::format("above {} bytes all ranks share the combining", kFlatBytes)};
    case Coll::all_to_all: return {"pairwise", "one message to each rank"};
    case Coll::gather:
    case Coll::scatter: return {"direct", "one message between root and each rank"};
    default: break;
  }
  fail(Result::internal_error, "{} has no plan", name_of(call.coll));
}

// Whole-message algorithms need each step's pieces to fit one slot.
bool fits_whole(const CallShape& call, const PlanInputs& in) {
  return bytes_per_rank(call, in.nranks) + in.nranks * kCacheLine * 2 <= in.slot_bytes;
}

// All ranks' inputs and outputs together fill half the last-level cache or more: what is written now is gone from it
// before it is read again.
bool leaves_cache(const CallShape& call, const PlanInputs& in) {
  return 2 * bytes_per_rank(call, in.nranks) * static_cast<uint64_t>(in.nranks) >= in.cache_bytes / 2;
}

// Why an algorithm can't do a call through slots; empty: it can. `fits_others`: calls of other sizes, or those of other
// communicators, it can.
struct Obstacle {
  std::string text;
  bool fits_others = false;
};
Obstacle obstacle_of(const Algorithm& a, const CallShape& call, const PlanInputs& in) {
  if (in.reproducible && reduces(call.coll) && !a.rank_order)
    return {fmt::format("does not combine in rank order, which MUSTER_REPRODUCIBLE=1 demands of {}", name_of(call.coll))};
  if (a.windows) return {"serves only when all buffers are windows", true};
  if (a.names_all && in.nranks > kMostDirect) return {fmt::format("is not for {} ranks: {} are the most for {}", in.nranks, kMostDirect, name_of(call.coll))};
  if (a.by_host)
    if (const std::string text = obstacle(in.placement ? *in.placement : Placement{std::vector<int>(static_cast<size_t>(in.nranks)), {}}); !text.empty())
      return {text, true};
  if (a.whole && !fits_whole(call, in)) return {fmt::format("is for data that fits one slot of {} bytes", in.slot_bytes), true};
  return {};
}

// What displaces the choice by thresholds must be cheaper by more than times vary, so that choices don't hang on noise.
double margin(const PlanInputs& in) { return 1 + (*in.tuned)("host.spread"); }

// The cheapest through slots, of those whose results are rounded once, in rank order (docs/architecture.md, Numbers).
struct Cheapest {
  const Algorithm* algorithm = nullptr;
  double us = 0;
  std::string reason;
};
Cheapest cheapest(const CallShape& call, const PlanInputs& in) {
  const Algorithm* const usual = find_algorithm(call.coll, by_thresholds(call, in).name);
  Cheapest best, second, as_usual;
  for (const Algorithm& a : algorithms()) {
    if (a.coll != call.coll || !obstacle_of(a, call, in).text.empty() || (reduces(call.coll) && !a.rank_order)) continue;
    if (!in.trees && std::string_view(a.name) == "tree") continue;
    const double us = host_price(a, call, in, *in.tuned).us;
    if (&a == usual) as_usual = {&a, us, {}};
    if (!best.algorithm || us < best.us) {
      second = best;
      best = {&a, us, {}};
    } else if (!second.algorithm || us < second.us) {
      second = {&a, us, {}};
    }
  }
  if (!best.algorithm) return best;
  best.reason = "cheapest by the tuning profile";
  if (as_usual.algorithm && best.algorithm != usual && as_usual.us <= best.us * margin(in)) {
    best.reason += fmt::format(", give or take {:.2g} %", 100 * (margin(in) - 1));
    second = std::exchange(best, {usual, as_usual.us, std::move(best.reason)});
  }
  best.reason += fmt::format(": {:.3g} us", best.us);
  if (second.algorithm) best.reason += fmt::format(", {} {:.3g}", second.algorithm->name, second.us);
  return best;
}

// A profile is of a host: its ranks are few enough for all that there is.
bool has_prices(const PlanInputs& in) { return in.tuned && in.nranks > 1 && in.nranks <= kMostDirect; }

std::string hosts_text(const PlanInputs& in) {
  const Spread s = spread_of(in);
  const bool even = s.ranks == s.hosts * s.per_host;
  return fmt::format("{} hosts of {}{} rank{} over {}", s.hosts, even ? "" : "up to ", s.per_host, s.per_host == 1 ? "" : "s", name_of(in.network.kind));
}

// Several hosts: the cheapest of all that can run the call. Sums may be rounded on the way, since combining all in one place would have
// everything cross the network.
Pick cheapest_between_hosts(const CallShape& call, const PlanInputs& in) {
  const Constants& constants = in.tuned ? *in.tuned : Constants::built_in();
  const Algorithm *best = nullptr, *second = nullptr;
  HostsPrice price;
  double second_us = 0;
  for (const Algorithm& a : algorithms()) {
    if (a.coll != call.coll || !is_allowed(call, a) || !obstacle_of(a, call, in).text.empty()) continue;
    if (!in.trees && !call.allowed && std::string_view(a.name) == "tree") continue;
    const auto p = hosts_price(a, call, in, constants);
    if (!p) continue;
    if (!best || p->us < price.us) {
      second = best;
      second_us = price.us;
      best = &a;
      price = *p;
    } else if (!second || p->us < second_us) {
      second = &a;
      second_us = p->us;
    }
  }
  if (!best) return by_thresholds(call, in);
  std::string reason = fmt::format("cheapest on {}{}: {:.3g} messages one after another and {:.3g} bytes of a host cross the network, {:.3g} us", hosts_text(in),
                                   in.tuned ? " by the tuning profile" : "", price.far_rounds, price.far_bytes, price.us);
  if (second) reason += fmt::format(", {} {:.3g}", second->name, second_us);
  return {best->name, std::move(reason)};
}

Pick pick(const CallShape& call, const PlanInputs& in) {
  if (in.placement && in.nranks > 1 && call.count > 0) return cheapest_between_hosts(call, in);
  if (has_prices(in) && call.count > 0)
    if (Cheapest c = cheapest(call, in); c.algorithm) return {c.algorithm->name, std::move(c.reason)};
  return by_thresholds(call, in);
}

// Options force an algorithm for all collectives that have it; the others are chosen freely, and explain() says so.
void force_by_option(const CallShape& call, const PlanInputs& in, Pick& p) {
  const std::string option = fmt::format("{}={}", in.forced_by, in.algorithm);
  const Algorithm* const forced = find_algorithm(call.coll, in.algorithm);
  if (!forced) {
    p.reason = fmt::format("{}: {} has no {}; {}", in.forced_by, name_of(call.coll), in.algorithm, p.reason);
    return;
  }
  const Obstacle obstacle = obstacle_of(*forced, call, in);
  const Algorithm* const by_slots = forced->windows && forced->by_host ? find_algorithm(call.coll, "hierarchical") : nullptr;
  if (by_slots && obstacle_of(*by_slots, call, in).text.empty())
    p = {by_slots->name, fmt::format("{} {}", option, obstacle.text)};
  else if (obstacle.text.empty())
    p = {forced->name, "forced by " + option};
  else if (obstacle.fits_others)
    p.reason = fmt::format("{} {}; {}", option, obstacle.text, p.reason);
  else
    fail(Result::invalid_usage, "{} {}. Unset it or choose another", option, obstacle.text);
}

// The planner's own pick if the call allows it, else the first of those that it allows.
void keep_to_selection(const CallShape& call, const PlanInputs& in, Pick& p) {
  std::vector<std::string> obstacles;
  std::vector<const char*> possible;
  const Algorithm* first = nullptr;
  for (const Algorithm& a : algorithms()) {
    if (a.coll != call.coll) continue;
    const std::string obstacle = obstacle_of(a, call, in).text;
    if (obstacle.empty()) possible.push_back(a.name);
    if (!is_allowed(call, a)) continue;
    if (!obstacle.empty()) {
      obstacles.push_back(fmt::format("{} {}", a.name, obstacle));
    } else if (std::string_view(p.name) == a.name) {
      p.reason += "; the call's configuration allows it";
      return;
    } else if (!first) {
      first = &a;
    }
  }
  if (!first)
    fail(Result::invalid_argument, "{} of {} elements among {} ranks can't use what its configuration selects: {}. Possible are: {}", name_of(call.coll),
         call.count, in.nranks, fmt::join(obstacles, ", "), fmt::join(possible, ", "));
  p = {first->name, "forced by the call's configuration"};
}

// Why a program that the user brought doesn't run this call; empty: it does. Throws where it can't, though it is for such calls.
std::string custom_obstacle(const CustomProgram& custom, const CallShape& call, const PlanInputs& in, bool windows) {
  const Algorithm& a = custom.algorithm;
  const ProgramSet& set = custom.set;
  if (!in.algorithm.empty() && in.algorithm != a.name) return fmt::format("is not what {} names", in.forced_by);
  if (custom.nranks() != in.nranks) return fmt::format("is for {} ranks", custom.nranks());
  if (rooted(call.coll) && custom.root() != call.root) return fmt::format("is for root {}", custom.root());
  const uint64_t bytes = bytes_per_rank(call, in.nranks);
  if (bytes < set.min_bytes || bytes > set.max_bytes) return fmt::format("is for {} to {} bytes", set.min_bytes, set.max_bytes);
  if (a.windows && !windows) return "serves only when all buffers are windows";
  if (a.windows && !in.windows) return "needs windows, which there are none";
  if (a.windows && call.op == RedOp::pre_mul_sum && reduces(call.coll)) return "can't apply a peer's factor";
  if (in.reproducible && reduces(call.coll) && !a.rank_order)
    fail(Result::invalid_usage, "MUSTER_PROGRAM: {} ({}) does not combine in rank order, which MUSTER_REPRODUCIBLE=1 demands of {}. Unset one", a.name,
         custom.file, name_of(call.coll));
  if (!a.windows && in.slot_bytes / custom.pieces < kCacheLine)
    fail(Result::invalid_usage, "MUSTER_PROGRAM: {} ({}) has messages of {} chunks, too many for slots of {} bytes. Raise MUSTER_SLOT_BYTES to {}", a.name,
         custom.file, custom.pieces, in.slot_bytes, custom.pieces * kCacheLine);
  return {};
}

// The user's own program for this call, if there is one; what keeps others from it is added to `obstacles`.
Choice choose_custom(const CallShape& call, const PlanInputs& in, bool windows, std::string* obstacles) {
  Choice c;
  for (const auto& custom : in.custom) {
    if (custom->algorithm.coll != call.coll || (windows && !custom->algorithm.windows)) continue;
    const std::string obstacle = custom_obstacle(*custom, call, in, windows);
    if (!obstacle.empty()) {
      if (obstacles) *obstacles += fmt::format("; {} ({}) {}", custom->algorithm.name, custom->file, obstacle);
      continue;
    }
    c.custom = custom;
    c.algorithm = &custom->algorithm;
    c.channels = custom->channels;
    c.tile_bytes = windows ? kWindowTile : in.slot_bytes / custom->pieces / kCacheLine * kCacheLine;
    c.reason = in.algorithm.empty() ? "brought by MUSTER_PROGRAM" : fmt::format("brought by MUSTER_PROGRAM, forced by {}={}", in.forced_by, in.algorithm);
    if (call.allowed) c.reason += ", which goes before the call's configuration";
    if (in.channels) c.reason += fmt::format("; its channels, not MUSTER_CHANNELS={}", in.channels);
    c.streamed = leaves_cache(call, in);
    c.stream_slots = kStreamSlots;
    return c;
  }
  return c;
}

}  // namespace

Program program_of(const Choice& choice, const Shape& shape) {
  if (choice.custom) return choice.custom->set.programs[static_cast<size_t>(shape.rank)];
  return make_program(*choice.algorithm, shape, choice.channels);
}

int channels_of(const CallShape& call, const PlanInputs& in) {
  return call.channels ? call.channels : in.channels ? in.channels : 1;
}

bool can_run(const Algorithm& a, const CallShape& call, const PlanInputs& in) {
  const Algorithm* const forced = find_algorithm(call.coll, in.algorithm);
  return (forced ? forced == &a : is_allowed(call, a)) && obstacle_of(a, call, in).text.empty();
}

Choice choose(const CallShape& call, const PlanInputs& in) {
  std::string obstacles;
  Choice c = choose_custom(call, in, false, &obstacles);
  if (c.algorithm) return c;
  Pick p = pick(call, in);
  if (in.nranks > 1) {
    const bool by_option = !in.algorithm.empty() && (!call.allowed || find_algorithm(call.coll, in.algorithm));
    if (by_option)
      force_by_option(call, in, p);
    else if (call.allowed)
      keep_to_selection(call, in, p);
    if (by_option && call.allowed) p.reason += ", which goes before the call's configuration";
  }
  c.algorithm = find_algorithm(call.coll, p.name);
  if (!c.algorithm) fail(Result::internal_error, "{} has no algorithm {}", name_of(call.coll), p.name);
  c.reason = std::move(p.reason) + obstacles;
  c.streamed = leaves_cache(call, in);
  c.stream_slots = kStreamSlots;
  if (c.algorithm->whole) {
    c.tile_bytes = in.slot_bytes;  // one tile
    if (in.channels > 1) c.reason += fmt::format("; one channel, not MUSTER_CHANNELS={}: its messages are not cut", in.channels);
    return c;
  }
  c.tile_bytes = in.slot_bytes;
  c.channels = channels_of(call, in);
  return c;
}

Choice choose_messages(const PlanInputs& in) {
  Choice c;
  c.tile_bytes = in.message_bytes;
  c.stream_slots = kStreamSlots;
  return c;
}

namespace {

// Instead of what the call does through slots. Each host decides by itself whether its buffers are windows, since what is sent
// between hosts is the same.
Choice choose_host_windows(const CallShape& call, const PlanInputs& in) {
  if (!in.placement || !in.host_windows || (call.op == RedOp::pre_mul_sum && reduces(call.coll))) return {};
  if (bytes_per_rank(call, in.nranks) < kHostWindowBytes || spread_of(in).per_host > kMostDirect) return {};
  const Algorithm* const windows = find_algorithm(call.coll, "hierarchical_window");
  if (!windows || !is_allowed(call, *windows)) return {};
  Choice c = choose(call, in);
  if (c.algorithm != find_algorithm(call.coll, "hierarchical")) return {};
  c.algorithm = windows;
  c.streamed = false;  // sums are sent on at once
  c.reason = fmt::format("from {} bytes on no copy inside a host is worth one more exchange", kHostWindowBytes);
  return c;
}

}  // namespace

Choice choose_windows(const CallShape& call, const PlanInputs& in) {
  if (choose_custom(call, in, false, nullptr).algorithm) return {};  // wherever the buffers are
  Choice c = choose_custom(call, in, true, nullptr);
  if (c.algorithm) return c;
  if (Choice inside = choose_host_windows(call, in); inside.algorithm) return inside;
  if (!in.windows || in.nranks == 1 || in.nranks > kMostDirect) return c;
  if (!in.algorithm.empty() && in.algorithm != "window") return c;
  if (in.placement && in.algorithm.empty() && !call.allowed) return c;  // other hosts' memory is out of reach, emulated ones' only on demand
  if (call.allowed && in.algorithm.empty() && !is_allowed(call, *find_algorithm(call.coll, "window"))) return c;
  if (call.op == RedOp::pre_mul_sum && reduces(call.coll)) return c;  // a peer's factor isn't known here
  const Algorithm* const window = find_algorithm(call.coll, "window");
  if (in.algorithm == "window") {
    c.reason = fmt::format("forced by {}=window", in.forced_by);
  } else if (has_prices(in) && call.count > 0) {
    const double us = host_price(*window, call, in, *in.tuned).us;
    const Cheapest slots = cheapest(call, in);
    const bool usual = bytes_per_rank(call, in.nranks) >= kWindowBytes;
    if (slots.algorithm && (usual ? slots.us * margin(in) < us : slots.us <= us * margin(in))) return c;
    c.reason = fmt::format("cheapest by the tuning profile: {:.3g} us", us);
    if (slots.algorithm) c.reason += fmt::format(", {} through slots {:.3g}", slots.algorithm->name, slots.us);
  } else if (bytes_per_rank(call, in.nranks) < kWindowBytes) {
    return c;
  } else {
    c.reason = fmt::format("from {} bytes on no copy is worth one more exchange", kWindowBytes);
  }
  c.algorithm = window;
  c.tile_bytes = kWindowTile;
  c.channels = channels_of(call, in);
  c.streamed = bytes_per_rank(call, in.nranks) >= (reduces(call.coll) ? kStreamWindowReductions : kStreamWindowCopies);
  return c;
}

UnevenChoice choose_uneven(const CallShape& call, uint64_t elements, const PlanInputs& inputs) {
  PlanInputs in = inputs;
  in.custom.clear();  // they are for what their files name
  UnevenChoice c;
  c.alike = call;
  c.alike.coll = even(call.coll);
  c.alike.count = ceil_div(elements, static_cast<uint64_t>(in.nranks));
  c.average = c.alike;
  if (!is_pairwise(call.coll)) {
    c.slots = choose(c.alike, in);
    c.windows = choose_windows(c.alike, in);
    return c;
  }
  // Ranks know different counts and must choose alike, and each message must be one chunk, so that its ends know its length.
  PlanInputs free = in;
  free.algorithm.clear();
  free.placement.reset();
  free.tuned.reset();
  const bool streamed = choose(c.alike, free).streamed;
  c.alike.count = 1;
  c.slots = choose(c.alike, free);
  c.slots.streamed = streamed;
  c.slots.reason += ", since only its two ends know how much it is";
  return c;
}

}  // namespace muster
