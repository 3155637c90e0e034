// The collectives of a warp: shuffles, votes, matches, reductions.
#include <cstdio>

#include "scheduler.h"

namespace cuda_sim {
namespace {

constexpr uint64_t kInactiveLane =
    0xDEADBEEFDEADBEEFull;  // what a shuffle from one gives: PTX leaves it undefined

bool has(uint32_t lanes, uint32_t lane) { return lanes >> lane & 1; }

// PTX ISA, "shfl.sync": the source lane and whether it is in range.
void shuffle(const Collective& c, uint32_t lanes, int lane, Thread* t) {
  int b = c.b[lane] & 0x1f, clamp = c.c[lane] & 0x1f, segment = c.c[lane] >> 8 & 0x1f;
  int max_lane = (lane & segment) | (clamp & ~segment), min_lane = lane & segment;
  int from = 0;
  bool in_range = false;
  switch (c.op) {
    case W_SHFL_UP:
      from = lane - b;
      in_range = from >= max_lane;
      break;
    case W_SHFL_DOWN:
      from = lane + b;
      in_range = from <= max_lane;
      break;
    case W_SHFL_BFLY:
      from = lane ^ b;
      in_range = from <= max_lane;
      break;
    default:
      from = min_lane | (b & ~segment);
      in_range = from <= max_lane;
  }
  if (!in_range) from = lane;
  t->result = has(lanes, from) ? c.value[from] : kInactiveLane;
  t->predicate = in_range;
}

uint32_t reduce(int op, uint32_t a, uint32_t b) {
  auto less = static_cast<int32_t>(a) < static_cast<int32_t>(b);
  switch (op) {
    case W_RED_ADD:
      return a + b;
    case W_RED_MIN_S:
      return less ? a : b;
    case W_RED_MAX_S:
      return less ? b : a;
    case W_RED_MIN_U:
      return a < b ? a : b;
    case W_RED_MAX_U:
      return a < b ? b : a;
    case W_RED_AND:
      return a & b;
    case W_RED_OR:
      return a | b;
    default:
      return a ^ b;
  }
}

uint32_t matching(const Collective& c, uint32_t lanes, int lane) {
  uint32_t same = 0;
  for (int other = 0; other < 32; other++)
    if (has(lanes, other) && c.value[other] == c.value[lane]) same |= 1u << other;
  return same;
}

void finish(Block& b, uint32_t warp, const Collective& c) {
  uint32_t lanes = c.arrived, ballot = 0, reduction = 0;
  bool first = true;
  for (int lane = 0; lane < 32; lane++) {
    if (!has(lanes, lane)) continue;
    if (c.value[lane]) ballot |= 1u << lane;
    auto value = static_cast<uint32_t>(c.value[lane]);
    reduction = first ? value : reduce(c.op, reduction, value);
    first = false;
  }
  bool all = ballot == lanes, any = ballot != 0;
  for (int lane = 0; lane < 32; lane++) {
    if (!has(lanes, lane)) continue;
    Thread* t = &b.threads[warp * 32 + lane];
    t->result = t->predicate = 0;
    switch (c.op) {
      case W_SYNC:
        break;
      case W_SHFL_UP:
      case W_SHFL_DOWN:
      case W_SHFL_BFLY:
      case W_SHFL_IDX:
        shuffle(c, lanes, lane, t);
        break;
      case W_VOTE_ALL:
        t->result = all;
        break;
      case W_VOTE_ANY:
        t->result = any;
        break;
      case W_VOTE_UNI:
        t->result = all || !any;
        break;
      case W_BALLOT:
        t->result = ballot;
        break;
      case W_MATCH_ANY:
        t->result = matching(c, lanes, lane);
        break;
      case W_MATCH_ALL:
        t->predicate = matching(c, lanes, lane) == lanes;
        t->result = t->predicate ? lanes : 0;
        break;
      default:
        t->result = reduction;
    }
    b.wake(t);
  }
  this_worker->progress();
}

}  // namespace

void check_collectives(Block& b, uint32_t warp) {
  Warp& w = b.warps[warp];
  for (size_t i = 0; i < w.collectives.size();) {
    uint32_t need = w.collectives[i].mask & w.alive;  // lanes that have ended no longer take part
    if ((w.collectives[i].arrived & need) != need) {
      i++;
      continue;
    }
    Collective done = w.collectives[i];
    w.collectives.erase(w.collectives.begin() + static_cast<ptrdiff_t>(i));
    finish(b, warp, done);
  }
}

extern "C" uint64_t csim_warp(int op, uint32_t mask, uint64_t value, uint32_t b, uint32_t c,
                              uint32_t* predicate) {
  Thread* t = csim_thread;
  Worker* worker = this_worker;
  Block& block = *worker->block;
  Warp& warp = *t->warp;
  const char* kernel = block.launch().name;
  uint32_t me = 1u << t->lane;
  if (!(mask & me)) {
    fprintf(stderr, "cuda_sim: kernel %s: lane %u calls a warp collective whose mask %08x it isn't in\n",
            kernel, t->lane, mask);
    csim_trap();
  }
  Collective* in = nullptr;
  for (Collective& other : warp.collectives)
    if (other.mask == mask && !(other.arrived & me)) {
      in = &other;
      break;
    }
  if (!in) {
    for (const Collective& other : warp.collectives)
      if ((other.mask & mask) && other.mask != mask)
        fprintf(stderr, "cuda_sim: kernel %s: warp collectives with masks %08x and %08x overlap\n", kernel,
                other.mask, mask);
    in = &warp.collectives.emplace_back();
    in->mask = mask;
    in->op = op;
  }
  if (in->op != op) {
    fprintf(stderr, "cuda_sim: kernel %s: lanes of one warp have met in different collectives (%d and %d)\n",
            kernel, in->op, op);
    csim_trap();
  }
  in->arrived |= me;
  in->value[t->lane] = value;
  in->b[t->lane] = b;
  in->c[t->lane] = c;
  // Of the collectives only __syncwarp orders memory (CUDA programming guide).
  if (op == W_SYNC) race_release(&warp);
  t->state = Thread::State::kAtCollective;
  check_collectives(block, t->warp_id);
  worker->reschedule();
  if (op == W_SYNC) race_acquire(&warp);
  if (predicate) *predicate = t->predicate;
  return t->result;
}

}  // namespace cuda_sim
