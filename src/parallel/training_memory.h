// What one GPU holds while a model is trained, by tenant.
//
// Weights, gradients, master copy and moments: 2 + 2 + 4 + 4 + 4 bytes per parameter in mixed precision with
// Adam, sharded by stage as in Rajbhandari et al., ZeRO (SC 2020), section 3 and table 1. The shard of dense
// parameters is of the dp * ep * cp ranks that have the same ones; of experts' parameters dp * cp have the
// same.
//
// Activations: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models (MLSys
// 2023), table 2: of one GPT layer, in bytes, for s tokens, b sequences, hidden h, a heads, t-way tensor
// parallelism:
//   no parallelism           s b h (34 + 5 a s / h)
//   tensors                  s b h (10 + 24 / t + 5 a s / (h t))
//   tensors and sequence     s b h / t (34 + 5 a s / h)
//   and selective recompute  the same without 5 a s / h
//   full recompute           2 s b h, with sequence parallelism 2 s b h / t: a layer's input is split then;
//   and one
//                            layer's as with selective recompute, while it is recomputed
// For other layers (SwiGLU, grouped heads, experts) the same tensors are counted. The first pipeline stage
// keeps those of pp micro-batches, with v chunks (1 + (pp - 1) / (pp v)) times as much (section 4.2.3); the
// last also logits (4 s b V / t). Not counted: the CUDA context, communication buffers, fragmentation of the
// allocator.
#pragma once

#include <cstdint>

#include "parallel/training_layout.h"

namespace muster {

struct StageMemory {  // bytes
  double weights = 0, gradients = 0, master = 0, moments = 0;
  double gathered = 0, activations = 0;
  double state() const { return weights + gradients + master + moments; }
  double total() const { return state() + gathered + activations; }
};

// Of a GPU of this pipeline stage. `training` as check() takes it.
StageMemory memory_of_stage(const Transformer& model, const Training& training, int stage);
// Of the stage that needs most, and which it is.
struct PeakMemory {
  int stage = 0;
  StageMemory use;
};
PeakMemory peak_memory(const Transformer& model, const Training& training);

// Elements of one rank of a stage.
struct StageParameters {
  int64_t dense = 0, experts = 0;
  int64_t sum() const { return dense + experts; }
};
StageParameters parameters_of_stage(const Transformer& model, const Training& training, int stage);

// Of one layer and one micro-batch.
double layer_activations(const Transformer& model, const Training& training);

// Weights, gradients and optimizer state of the whole model: bytes.
double total_state(const Transformer& model, int gradient_bytes = 2);
// So many GPUs of this memory hold total_state, nothing else, if it could be cut anywhere.
int64_t least_devices(const Transformer& model, double device_bytes, int gradient_bytes = 2);

}  // namespace muster
