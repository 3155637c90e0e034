// What options that are set do to a plan, as `muster plan` says it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace muster::tool {

struct OptionEffect {
  std::string name, value;  // of the option; no name: what is said is about several
  std::string effect;       // "only ring", "no effect: one host"
};

inline constexpr std::string_view kNoEffect = "no effect: ";

// Of an option of any type, as it was set.
const std::string& as_written(const Options& options, std::string_view name);

// "options    NCCL_PROTO=LL: only LL", a line each.
std::string effects_text(const std::vector<OptionEffect>& effects);
nlohmann::ordered_json json_of(const std::vector<OptionEffect>& effects);

}  // namespace muster::tool
