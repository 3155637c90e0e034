// Times and rates as people write them; sizes are base/size_text.h's.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/size_text.h"

namespace muster::tool {

inline std::string quantity(double value, std::string_view unit) {
  return fmt::format("{:.4g} {}", value, unit);
}

inline std::string time_text(double us) {
  return us < 1e3 ? quantity(us, "us") : us < 1e6 ? quantity(us / 1e3, "ms") : quantity(us / 1e6, "s");
}

}  // namespace muster::tool
