// Sizes as people write them: "8", "64K", "1.5M", "16G"; K, M, G and T are powers of 1024.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

// Bytes, rounded down. Nothing for any other text, what is negative, or 2^63 and more.
inline std::optional<uint64_t> parse_size(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  int shift = 0;
  if (rest != end) {
    const size_t unit = std::string_view("KMGT").find(static_cast<char>(*rest & ~0x20));
    if (unit == std::string_view::npos || rest + 1 != end) return std::nullopt;
    shift = static_cast<int>(10 * (unit + 1));
  }
  value = std::ldexp(value, shift);
  if (value >= 0x1p63) return std::nullopt;
  return static_cast<uint64_t>(value);
}

// The other way, with the largest unit of which it is a whole number.
inline std::string size_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"", "K", "M", "G", "T"};
  size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + kUnits[unit];
}

}  // namespace muster
