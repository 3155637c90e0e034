// What options and a communicator's Config ask of planning.
#pragma once

#include "base/options.h"
#include "muster/muster.h"
#include "plan/planner.h"

namespace muster {

// Checks what is asked for and writes it to `inputs`, whose custom programs are there already. Among several ranks this comes after they have met, so that all
// learn what is wrong with one's. Throws invalid_usage naming the option, invalid_argument naming the field of Config.
void apply_plan_options(const Options& options, const Config& config, PlanInputs& inputs);
// Of several hosts: messages as long as the network wants them, unless options say how long.
void fit_to_network(const Options& options, size_t slot_bytes, PlanInputs& inputs);
// A tuner plugin may ask for more channels. Of `inputs` that know how many ranks there are.
void make_room_for_tuner(PlanInputs& inputs);

}  // namespace muster
