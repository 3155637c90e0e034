#include "perf/split.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <string>
#include <string_view>

#include "muster/types.h"

namespace muster::perf {

int split_color(int process, const char* split, const char* mask) {
  const auto refuse = [](const char* name, const char* value) {
    throw Error(Result::invalid_usage,
                fmt::format("{}='{}' can't be read: AND, OR, MOD or DIV (or & | % /) and a number is wanted, "
                            "e.g. 'MOD 2'; for the mask a hexadecimal number",
                            name, value));
  };
  const auto number = [](std::string_view text, int base, int& value) {
    if (text.starts_with("0x") || text.starts_with("0X")) {
      text.remove_prefix(2);
      base = 16;
    } else if (base != 16 && (text.starts_with("0b") || text.starts_with("0B"))) {
      text.remove_prefix(2);
      base = 2;
    }
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return error == std::errc() && end == text.data() + text.size() && value >= 0;
  };
  int value = 0;
  if (mask && *mask) {
    if (!number(mask, 16, value)) refuse("NCCL_TESTS_SPLIT_MASK", mask);
    return process & value;
  }
  if (!split || !*split) return 0;
  const std::string_view text = split;
  const size_t digits = text.find_first_of("0123456789");
  if (digits == text.npos || !number(text.substr(digits), 10, value)) refuse("NCCL_TESTS_SPLIT", split);
  std::string op(text.substr(0, digits));
  std::erase(op, ' ');
  for (char& c : op) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (op == "AND" || op == "&") return process & value;
  if (op == "OR" || op == "|") return process | value;
  if ((op == "MOD" || op == "%") && value > 0) return process % value;
  if ((op == "DIV" || op == "/") && value > 0) return process / value;
  refuse("NCCL_TESTS_SPLIT", split);
  return 0;
}

}  // namespace muster::perf
