// Constants that `muster tune` measured, as a communicator finds them when it is made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "plan/constants.h"

namespace muster {

struct TuningProfile {
  std::string file;                            // empty: there is none
  uint64_t hash = 0;                           // of what it says; 0: there is none
  std::shared_ptr<const Constants> constants;  // all that the model needs; null: there is none
};

// The file that MUSTER_TUNING_PROFILE names; where that isn't set, the first of ~/.muster.tuning and
// `system_file` that there is. Throws invalid_usage for a file that can't be read, and for one that says
// something wrong (file:line).
TuningProfile load_tuning_profile(const Options& options, const char* system_file = "/etc/muster.tuning");
// Where `muster tune` writes if it isn't told otherwise. Empty: there is no home.
std::string default_tuning_file(const Options& options);

// One rank's, as others see it.
struct RankProfile {
  std::string rank;  // "rank 0 (host a, pid 17)"
  std::string file;
  uint64_t hash = 0;
};
// Throws invalid_usage, naming two ranks and their files, unless all say the same.
void require_one_profile(const std::vector<RankProfile>& ranks);

}  // namespace muster
