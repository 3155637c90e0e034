// Who of a communicator's ranks is behind the others, or ahead of them, and by how much.
#pragma once

#include <string>
#include <vector>

#include "comm/host_status.h"

namespace muster {

struct Verdict {
  enum class Kind {
    moving,  // calls were made while it was looked at
    idle,    // all have finished the calls that they started, equally many
    level,   // all are in the same call
    apart    // some have started more calls than others
  };
  Kind kind = Kind::idle;
  uint64_t call = 0;               // the last one that most ranks started
  std::vector<int> behind, ahead;  // those who started fewer or more
  std::vector<int> halted;         // whose process doesn't run: stopped, traced, silent
  std::vector<int> gone;           // whose process ended without leaving
  std::string text;                // in a sentence or two
};
std::string_view name_of(Verdict::Kind k);

// The few are named, not the many; of equally many those behind.
Verdict judge(const CommunicatorStatus& c);

// "rank 3", "ranks 0..4, 6"
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace muster
