#include "parallel/training_memory.h"

#include <algorithm>
#include <cmath>

namespace muster {
namespace {

constexpr int kWeightBytes = 2, kMasterBytes = 4, kMomentBytes = 8;

double shard(int64_t elements, int64_t ranks) { return static_cast<double>((elements + ranks - 1) / ranks); }

// Of one token of a layer, bytes: what is on every tensor-parallel rank unless the sequence is split, what is
// split by tensors, and what attention makes of its scores.
struct TokenBytes {
  double whole = 0, split = 0, scores = 0;
};

TokenBytes token_bytes(const Transformer& m, int tp) {
  const double h = static_cast<double>(m.hidden), f = static_cast<double>(m.inner());
  // Heads that several ranks have are kept by each of them.
  const double kv = static_cast<double>(std::max<int64_t>(m.kv(), tp) * m.head_size());
  const double k = m.experts > 0 ? static_cast<double>(m.experts_per_token) : 1;
  const bool gpt_like = m.family == TransformerFamily::gpt;
  TokenBytes b;
  b.whole = 2 * h /* attention's input */ + 2 * h * k /* the MLP's */ + 4 * h /* the norms' */ +
            (gpt_like ? 2 * h : 0) /* dropout's masks */ + 4 * static_cast<double>(m.experts);
  b.split =
      2 * h /* Q */ + 4 * kv /* K and V */ + 2 * h /* the projection's input */ + (gpt_like ? 4 : 6) * f * k;
  // Softmax's output, and with dropout its mask and output.
  b.scores = (gpt_like ? 5 : 2) * static_cast<double>(m.heads) * static_cast<double>(m.sequence);
  return b;
}

// Parameters of one rank that are gathered at once.
int64_t largest_unit(const Transformer& m, const Training& t) {
  const ParameterCount c = count_parameters(m, t.sizes.tp);
  const int64_t mlp = c.mlp * std::max<int64_t>(1, m.experts / t.sizes.ep);
  return std::max(c.attention + c.norms + c.router + mlp, c.embedding);
}

}  // namespace

double layer_activations(const Transformer& m, const Training& t) {
  const double tp = t.sizes.tp, whole_by = t.sequence_parallel ? tp : 1;
  const double tokens = static_cast<double>(t.micro_batch) * static_cast<double>(m.sequence) / t.sizes.cp;
  if (t.recompute == Recompute::full) return tokens * 2 * static_cast<double>(m.hidden) / whole_by;
  const TokenBytes b = token_bytes(m, t.sizes.tp);
  return tokens * (b.whole / whole_by + b.split / tp + (t.recompute == Recompute::none ? b.scores / tp : 0));
}

StageParameters parameters_of_stage(const Transformer& m, const Training& t, int stage) {
  const ParameterCount c = count_parameters(m, t.sizes.tp);
  const int64_t layers = layers_of_stage(m, t, stage);
  const bool first = stage == 0, last = stage == t.sizes.pp - 1;
  StageParameters p;
  p.dense = layers * (c.attention + c.norms + c.router + (m.experts > 0 ? 0 : c.mlp));
  p.experts = m.experts > 0 ? layers * (m.experts / t.sizes.ep) * c.mlp : 0;
  if (first) p.dense += c.embedding;
  if (last) {
    p.dense += c.final_norm + c.head;
    // A tied head of another stage is a second copy of the embedding's words.
    if (c.head == 0 && !first) p.dense += (m.vocabulary + t.sizes.tp - 1) / t.sizes.tp * m.hidden;
  }
  return p;
}

StageMemory memory_of_stage(const Transformer& m, const Training& t, int stage) {
  const StageParameters p = parameters_of_stage(m, t, stage);
  const int64_t of_experts = int64_t{t.sizes.dp} * t.sizes.cp, of_dense = of_experts * t.sizes.ep;
  const double whole = static_cast<double>(p.sum());
  const double sharded = shard(p.dense, of_dense) + shard(p.experts, of_experts);
  const auto bytes = [&](int per_element, int from_stage) {
    return per_element * (t.zero >= from_stage ? sharded : whole);
  };
  StageMemory u;
  u.master = bytes(kMasterBytes, 1);
  u.moments = bytes(kMomentBytes, 1);
  u.gradients = bytes(t.gradient_bytes, 2);
  u.weights = bytes(kWeightBytes, 3);
  const double unit = static_cast<double>(largest_unit(m, t));
  u.gathered = (t.zero == 3 ? 2 * kWeightBytes * unit : 0) + (t.zero >= 2 ? t.gradient_bytes * unit : 0);

  const double layers = static_cast<double>(layers_of_stage(m, t, stage));
  const double micro_batches = static_cast<double>(t.micro_batches());
  const double pp = t.sizes.pp, v = t.interleave;
  // Micro-batches under way, counted in whole stages.
  const double under_way = v == 1 ? pp - stage : pp + (pp - 1 - 2 * stage) / v;
  u.activations = layer_activations(m, t) * layers * std::min(micro_batches, std::max(1.0, under_way));
  if (t.recompute == Recompute::full && layers > 0) {
    Training kept = t;
    kept.recompute = Recompute::selective;
    u.activations += layer_activations(m, kept);
  }
  const double tokens = static_cast<double>(t.micro_batch) * static_cast<double>(m.sequence) / t.sizes.cp;
  if (stage == t.sizes.pp - 1) u.activations += 4 * tokens * static_cast<double>(m.vocabulary) / t.sizes.tp;
  return u;
}

PeakMemory peak_memory(const Transformer& m, const Training& t) {
  PeakMemory peak{0, memory_of_stage(m, t, 0)};
  for (int stage = 1; stage < t.sizes.pp; ++stage)
    if (const StageMemory u = memory_of_stage(m, t, stage); u.total() > peak.use.total()) peak = {stage, u};
  return peak;
}

double total_state(const Transformer& m, int gradient_bytes) {
  return static_cast<double>(total_parameters(m)) *
         (kWeightBytes + gradient_bytes + kMasterBytes + kMomentBytes);
}

int64_t least_devices(const Transformer& m, double device_bytes, int gradient_bytes) {
  return static_cast<int64_t>(std::ceil(total_state(m, gradient_bytes) / device_bytes));
}

}  // namespace muster
