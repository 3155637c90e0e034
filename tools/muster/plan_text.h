// What `muster plan` says of GPUs, for people and for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu_options.h"
#include "plan/prediction.h"
#include "plan/simulator.h"
#include "topology/finding.h"

namespace muster::tool {

struct PlanReport {
  std::string file;                   // of the topology; empty: this machine's
  std::string profile;                // of tuning, whose constants go before those built in; empty: none
  std::vector<SizeRow> rows;          // at least one
  std::vector<OptionEffect> options;  // that are set
  std::vector<topology::Finding> findings;  // that bear on speed
  std::optional<Simulation> simulation;     // of the best of the only row
};

std::string detail_text(const PlanReport& report);  // of the first row
std::string table_text(const PlanReport& report);   // a line for each row
std::string json_text(const PlanReport& report);

std::string rings_text(const Rings& rings);

// Why none of the candidates can be chosen.
std::string reason_for_none(const Prediction& prediction);

}  // namespace muster::tool
