// Small things that readers of typed text share.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

std::string_view trim(std::string_view text);  // without blanks, tabs and line ends around it
std::string lower(std::string_view text);      // ASCII letters
std::vector<std::string_view> split(std::string_view text, char separator);  // parts as they are; one for an empty text

// Fit for one line of a log: control characters become blanks, and what is longer than `most` bytes ends in "...".
std::string printable(std::string_view text, size_t most = SIZE_MAX);

// A whole number as C writes them: blanks around it, a sign, 0x for hexadecimal and 0 for octal are fine. Nothing for
// anything else or what int64_t can't hold.
std::optional<int64_t> parse_c_integer(std::string_view text);

// The name most like `name`, if it is like enough to be what was meant: a letter in six is wrong, too many, missing or
// swapped with its neighbour, and at least one may be. Empty: none is.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

}  // namespace muster
