// What options and a communicator's Config ask of planning.
#pragma once

#include <string>

#include "base/options.h"
#include "muster/muster.h"
#include "plan/planner.h"

namespace muster {

// Checks what is asked for and writes it to `inputs`. Among several ranks this comes after they have met, so that all
// learn what is wrong with one's. Throws invalid_usage naming the option, invalid_argument naming the field of Config.
void apply_plan_options(const Options& options, const Config& config, PlanInputs& inputs);

// NCCL_ALGO in Muster's terms. Throws invalid_usage for a word that NCCL doesn't know.
struct NcclAlgo {
  std::string algorithm;   // forced; empty: none
  std::string unmet;       // why it can't be met as a whole; empty: it is
};
NcclAlgo read_nccl_algo(const std::string& text);

}  // namespace muster
