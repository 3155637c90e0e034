// ncclConfig_t and ncclCollConfig_t of callers of every header since 2.14, read.
#pragma once

#include <optional>
#include <string>

#include "muster/muster.h"
#include "nccl.h"

namespace muster::nccl {

// invalid_argument naming the field and what it may be. NULL: the defaults.
Config parse_config(const ncclConfig_t* config);
// NULL: the parent's.
std::optional<Config> parse_config_of_child(const ncclConfig_t* config);
// The algorithms that a call may use (plan/selection.h); empty: all. `forced`: else it fails.
struct AlgorithmWish {
  std::string selection;
  bool forced = false;
};
// Checks that `config` asks for nothing that a call on host memory can't give. NULL: it asks for nothing.
AlgorithmWish parse_config(const ncclCollConfig_t* config);

}  // namespace muster::nccl
