// What the options that are set (environment, NCCL's files) make of a plan for GPUs. Each of them either
// shapes the plan or is said to have no effect on it, and why.
#pragma once

#include <vector>

#include "base/options.h"
#include "option_effects.h"
#include "plan/prediction.h"

namespace muster::tool {

struct GpuOptions {
  PredictOptions predict;
  int cross_nic = 2;  // RingSearch::cross_nic
  std::vector<OptionEffect> effects;
};

// `given`: what the command line asks for, which goes before options. Narrows down call.allowed. Throws
// invalid_usage for values that can't be met and that a communicator would refuse, too.
GpuOptions gpu_options(const Options& options, const PredictOptions& given, int hosts, CallShape& call);

}  // namespace muster::tool
