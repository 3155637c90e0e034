// Chooses how a collective runs on GPUs: algorithm, protocol, channels, tile; what is cheapest by the prices
// of gpu_price.h on the links that there are. A pure function of what all ranks agreed on, so every rank
// chooses alike.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "plan/constants.h"
#include "plan/links.h"
#include "plan/planner.h"
#include "plan/protocol.h"

namespace muster {

struct GpuPlanInputs {
  PlanInputs plan;  // slot_bytes: of a message of protocol simple; lanes: channels that there can be
  size_t ll_bytes =
      0;        // data of a message of protocol LL; 0: of ranks of several hosts, whose messages are counted
  Links links;  // of the ranks' GPUs
  std::shared_ptr<const Constants> tuned;  // null: the built-in ones
};

struct GpuChoice {
  Choice choice;
  Protocol protocol = Protocol::simple;
  double us = 0;  // predicted; 0 of a program that the user brought
};

// `protocols`: those that may be used, as NCCL_PROTO lists them for this collective ("LL,Simple", "^LL128");
// empty: all. Throws what choose() throws, and invalid_usage where kernels have none of those protocols.
GpuChoice choose_on_gpus(const CallShape& call, const GpuPlanInputs& inputs, const std::string& protocols);

struct PricedWay {
  const Algorithm* algorithm = nullptr;
  Protocol protocol = Protocol::simple;
  double us = 0;
};
// All ways in which it may run, cheapest first; none of one rank and of programs that the user brought.
// Throws as choose_on_gpus().
std::vector<PricedWay> ways_on_gpus(const CallShape& call, const GpuPlanInputs& inputs,
                                    const std::string& protocols);

// "all_reduce(...), 4 ranks: ring (idea), LL, 2 channels, tile 16384 B: reason"
std::string describe(const std::string& call, int nranks, const GpuChoice& choice);

}  // namespace muster
