// How a model's training is spread over GPUs: sizes of the parallel axes, and what else decides memory and
// time.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/transformer.h"

namespace muster {

// The product is the number of GPUs. Ranks count tp fastest, then cp, ep, pp, dp: tensors are split among
// neighbours, data parallelism is outermost.
struct ParallelSizes {
  int tp = 1;  // tensor
  int cp = 1;  // context: the sequence's
  int ep = 1;  // expert; of everything else these ranks are data-parallel
  int pp = 1;  // pipeline
  int dp = 1;  // data
  int64_t ranks() const { return int64_t{tp} * cp * ep * pp * dp; }
  int replicas() const { return dp * ep; }  // that take different sequences
};

// "tp=8,pp=16,dp=128"; axes not named are 1. Throws invalid_argument.
ParallelSizes parse_layout(const std::string& text);
std::string to_string(const ParallelSizes& sizes);  // axes of size 1 left out; "dp=1" where all are

enum class Recompute : uint8_t {
  none,       // every activation is kept
  selective,  // all but what attention makes of scores (what FlashAttention does, too)
  full,       // a layer's input is kept
};
const char* name_of(Recompute r);
Recompute recompute_named(const std::string& name);  // throws invalid_argument

struct Training {
  ParallelSizes sizes;
  int zero = 0;  // ZeRO's stage: shards 1: optimizer state, 2: and gradients, 3: and weights
  int64_t global_batch = 0, micro_batch = 1;  // sequences; of a replica at a time
  int interleave = 1;                         // chunks of layers per stage (1F1B where it is 1)
  Recompute recompute = Recompute::selective;
  bool sequence_parallel = true;  // where tp > 1: what isn't split by tensors is split by the sequence
  bool overlap = true;            // data-parallel communication goes on during backward and forward
  int gradient_bytes = 2;         // of an element: 2 or 4

  int64_t micro_batches() const { return global_batch / (sizes.replicas() * micro_batch); }
};

// Throws invalid_argument, naming the numbers, where the layout can't hold the model: axes that don't divide
// heads, layers, experts, sequence or batch. Layers that pipeline chunks don't divide are possible where two
// more would be divided: then the first and the last chunk have one less, as in the Llama 3 report
// (section 3.3.2).
void check(const Transformer& model, const Training& training);

// Layers of a stage, all its chunks together.
int64_t layers_of_stage(const Transformer& model, const Training& training, int stage);

}  // namespace muster
