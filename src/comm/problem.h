// What went wrong on one rank, as a text that travels: "code text"; empty: nothing.
#pragma once

#include <exception>
#include <span>
#include <string>

#include "base/error.h"

namespace muster {

std::string problem_of(const std::exception& e);
// What f throws.
template <class F>
std::string problem_in(F f) {
  try {
    f();
    return {};
  } catch (const std::exception& e) {
    return problem_of(e);
  }
}
// All ranks say how the last step went, so that all fail together with one reason: the first that isn't only
// about another rank's failure.
void throw_first(std::span<const std::string> problems);

}  // namespace muster
