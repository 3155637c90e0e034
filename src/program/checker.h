// Runs all ranks' programs of one collective on symbols instead of data and proves that they are right.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "program/program.h"

namespace muster {

struct CheckOptions {
  int slots = 2;         // messages a connection holds; a program right for few is right for more
  int tiles = 2;         // passes of each loop
  bool in_place = false; // input and output share memory as the C API allows for this collective
  // Tiles of each chunk of the data, 0 to `tiles`; empty: all chunks have all. As executors do, messages of nothing are
  // left out, but for the first of a message whose length only its two ends know (is_pairwise).
  std::vector<int> lengths;
};

struct CheckResult {
  bool ok = false;
  std::string message;       // names rank, channel, step and what was expected, when !ok
  bool rank_order = false;   // every reduced value is the left fold ((0 + 1) + 2) ... by rank, so bits don't depend on the plan
};

// programs[r] is rank r's. For send_recv programs, message lengths are taken to be pairwise equal.
CheckResult check(std::span<const Program> programs, const CheckOptions& options = {});

}  // namespace muster
