// How the checker says what is wrong: it throws a Violation, which check() turns into a CheckResult.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <utility>

#include "program/program.h"

namespace muster {

struct Violation {
  std::string message;
};

// A step in the programs of all ranks; step < 0: no step in particular.
struct Position {
  int rank = -1;
  int channel = -1;
  int loop = -1;
  int step = -1;
};

// "rank 3, channel 0, loop 0, step 4 (slot(2) + contribution(1) -> slot(4))"
std::string text_of(std::span<const Program> programs, const Position& at);

// "ring all_reduce, 5 ranks: "
std::string title_of(std::span<const Program> programs);

template <class... Args>
[[noreturn]] void violation(std::span<const Program> programs, const Position& at,
                            fmt::format_string<Args...> text, Args&&... args) {
  throw Violation{title_of(programs) + text_of(programs, at) + ": " +
                  fmt::format(text, std::forward<Args>(args)...)};
}

// What can be seen without running: references exist and may be used so, connections have one channel at each
// end, and the ranks' programs belong to one collective. Throws Violation.
void check_form(std::span<const Program> programs);

// Does rank `rank` have this buffer in this collective? (Only the root does on one side of a rooted one.)
bool has_buffer(const Program& p, int rank, uint16_t buffer);

}  // namespace muster
