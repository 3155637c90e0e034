#include "plan/planner.h"

#include <algorithm>

#include "base/error.h"
#include "base/math.h"

namespace muster {
namespace {

// Thresholds below are crossings measured with scripts/sweep_algorithms.py on a two-core machine.

// Up to here one message per peer beats the two rounds of reduce-scatter and all-gather.
size_t one_shot_limit(int nranks) { return nranks <= 2 ? 16 << 10 : 2 << 10; }
// From here on exchanging where the buffers are costs less than the copies it saves.
constexpr size_t kWindowBytes = 8192;
// Root sends to all: fine while it is few and small.
constexpr size_t kFlatBytes = 16 << 10;
// Shorter messages are written through the caches. Longer ones may go past them, if that is faster between these
// cores (store_trial.h).
constexpr size_t kStreamSlots = 4096;
// A window step is cut into tiles only so that an abort is noticed.
constexpr size_t kWindowTile = 4 << 20;
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

Pick pick(const CallShape& call, const PlanInputs& in) {
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

}  // namespace

Choice choose(const CallShape& call, const PlanInputs& in) {
  Choice c;
  Pick p = pick(call, in);
  if (!in.algorithm.empty() && in.nranks > 1) {
    // Forced for all collectives that have it; the others are chosen freely, and explain() says so.
    if (const Algorithm* forced = find_algorithm(call.coll, in.algorithm); forced && !forced->windows) {
      if (in.reproducible && reduces(call.coll) && !forced->rank_order)
        fail(Result::invalid_usage, "MUSTER_ALGO={} does not combine in rank order, which MUSTER_REPRODUCIBLE=1 demands of {}. Unset one of them",
             in.algorithm, name_of(call.coll));
      // Steps of these name all ranks at once; in the others each step names a few.
      const std::string_view name = forced->name;
      const bool all_at_once = (name == "one_shot" || name == "direct" || name == "scatter_gather") && call.coll != Coll::gather &&
                               call.coll != Coll::scatter;
      if (all_at_once && in.nranks > kMostDirect)
        fail(Result::invalid_usage, "MUSTER_ALGO={} with {} ranks: {} are the most for {}. Unset it or choose another", in.algorithm, in.nranks,
             kMostDirect, name_of(call.coll));
      if (forced->whole && !fits_whole(call, in))
        p.reason = fmt::format("MUSTER_ALGO={} is for data that fits one slot of {} bytes; {}", in.algorithm, in.slot_bytes, p.reason);
      else
        p = {forced->name, "MUSTER_ALGO"};
    } else if (forced) {
      p.reason = fmt::format("{} serves only when all buffers are windows; {}", in.algorithm, p.reason);
    } else {
      p.reason = fmt::format("{} has no {}; {}", name_of(call.coll), in.algorithm, p.reason);
    }
  }
  c.algorithm = find_algorithm(call.coll, p.name);
  if (!c.algorithm) fail(Result::internal_error, "{} has no algorithm {}", name_of(call.coll), p.name);
  c.reason = std::move(p.reason);
  c.streamed = leaves_cache(call, in);
  c.stream_slots = kStreamSlots;
  if (c.algorithm->whole) {
    c.tile_bytes = in.slot_bytes;  // one tile
    if (in.channels > 1) c.reason += fmt::format("; one channel, not MUSTER_CHANNELS={}: its messages are not cut", in.channels);
    return c;
  }
  c.tile_bytes = in.slot_bytes;
  c.channels = in.channels ? in.channels : 1;
  return c;
}

Choice choose_messages(const PlanInputs& in) {
  Choice c;
  c.tile_bytes = in.message_bytes;
  c.stream_slots = kStreamSlots;
  return c;
}

Choice choose_windows(const CallShape& call, const PlanInputs& in) {
  Choice c;
  if (!in.windows || in.nranks == 1 || in.nranks > kMostDirect) return c;
  if (!in.algorithm.empty() && in.algorithm != "window") return c;
  if (call.op == RedOp::pre_mul_sum && reduces(call.coll)) return c;  // a peer's factor isn't known here
  if (in.algorithm != "window" && bytes_per_rank(call, in.nranks) < kWindowBytes) return c;
  c.algorithm = find_algorithm(call.coll, "window");
  c.tile_bytes = kWindowTile;
  c.channels = in.channels ? in.channels : 1;
  c.streamed = bytes_per_rank(call, in.nranks) >= (reduces(call.coll) ? kStreamWindowReductions : kStreamWindowCopies);
  c.reason = in.algorithm == "window" ? "MUSTER_ALGO" : fmt::format("from {} bytes on no copy is worth one more exchange", kWindowBytes);
  return c;
}

}  // namespace muster
