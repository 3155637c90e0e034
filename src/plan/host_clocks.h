// Runs all ranks' programs on clocks: one clock per core, messages that arrive some time after they were
// sent, ranks that take turns where they share a core.
#pragma once

#include <functional>
#include <vector>

#include "program/program.h"

namespace muster {

struct StepTime {
  double messages_us = 0, bytes_us = 0;
};

struct ClockRules {
  int cores = 1;
  double call_us = 0, hand_over_us = 0, turn_us = 0;
  bool bytes_apart = false;  // what moving data takes is added up, and doesn't let the clocks go on
  // What a step takes in each pass; negative: both ends know that there is nothing to do.
  std::function<StepTime(const Program&, const Step&)> step;
};

// When a core's ranks have made their calls, and what it did until then.
struct ClockReading {
  double end_us = 0, messages_us = 0, bytes_us = 0, turns_us = 0;
};

// By core: `calls` calls one after the other, each with `tiles` passes of all loops. Throws internal_error
// for programs that wait for each other for ever.
std::vector<ClockReading> run_clocks(const std::vector<Program>& ranks, int calls, int tiles,
                                     const ClockRules& rules);

}  // namespace muster
