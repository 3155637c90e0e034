// What a call came to, and environment variables for the length of a test.
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

#include "muster/muster.h"

namespace muster::test {

struct Outcome {
  Result code = Result::success;
  std::string text;  // of the error
};
inline std::ostream& operator<<(std::ostream& out, const Outcome& o) { return out << name_of(o.code) << ": " << o.text; }

inline Outcome outcome_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return {e.code(), e.what()};
  }
  return {};
}

// Sets a variable, or unsets it for nullopt, until the end of the scope.
class Variable {
 public:
  Variable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    put(value);
  }
  ~Variable() { put(before_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void put(const std::optional<std::string>& value) {
    if (value)
      setenv(name_, value->c_str(), 1);
    else
      unsetenv(name_);
  }
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace muster::test
