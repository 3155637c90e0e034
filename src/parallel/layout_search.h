// Which layouts of a training run fit a cluster's GPUs, the fastest first.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/training_estimate.h"

namespace muster {

struct LayoutSearch {
  std::vector<TrainingEstimate> ranked;  // that fit, by time of a step: for all sizes of axes the fastest
  int64_t possible = 0;                  // layouts that divide everything
  int64_t fit = 0;
};

// Over tp (up to a host's GPUs), cp (from sequences of 16,384 on), ep, pp, dp, ZeRO's stages, micro-batches
// of 1 to 8 and chunks per stage, on all of prices.ranks() GPUs. Of what can be recomputed the least that
// fits is taken. `wanted` gives the rest: global batch, gradients, overlap. At most `most` of the fastest are
// kept.
LayoutSearch search_layouts(const Transformer& model, const Training& wanted, const GpuSpec& gpu,
                            GroupPrices& prices, size_t most);

}  // namespace muster
