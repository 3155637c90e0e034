// Options are data: one row each in one table. Nothing else in the library reads the environment, but for what launchers
// say there of rank and meeting point (bootstrap/launcher.h).
// A value that doesn't parse is an error that names the variable, the value and what is accepted.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

enum class OptionType { flag, integer, size, seconds, text };

struct Option {
  const char* name;           // the environment variable
  OptionType type;
  const char* default_value;  // as one would write it in the environment
  const char* help;           // one line
  bool must_agree;            // differs between ranks = error at init
};

std::span<const Option> option_table();

// A snapshot of the environment, taken when a communicator is made (never kept in a static).
class Options {
 public:
  static Options from_environment();  // throws invalid_usage for a value that doesn't parse

  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;    // also OptionType::size: bytes
  std::chrono::nanoseconds seconds(std::string_view name) const;  // 30 years at most, which "inf" means, too
  const std::string& text(std::string_view name) const;
  bool is_set(std::string_view name) const;        // present and not empty in the environment

  // "NAME=value" for each must_agree option, in table order; compared between ranks at init.
  std::vector<std::string> agreement() const;

 private:
  struct Value {
    bool set = false;
    int64_t integer = 0;
    std::chrono::nanoseconds seconds{0};
    std::string text;
  };
  const Value& value(std::string_view name, OptionType type) const;
  std::vector<Value> values_;
};

}  // namespace muster
