// Times and sizes as people write them.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace muster::tool {

inline std::string quantity(double value, std::string_view unit) {
  return fmt::format("{:.4g} {}", value, unit);
}

inline std::string time_text(double us) {
  return us < 1e3 ? quantity(us, "us") : us < 1e6 ? quantity(us / 1e3, "ms") : quantity(us / 1e6, "s");
}

inline std::string size_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"", "K", "M", "G", "T"};
  size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

}  // namespace muster::tool
