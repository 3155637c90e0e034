// A program of some of the ranks as a part of a program of all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "program/builder.h"

namespace muster {

inline constexpr uint32_t kNoChunk = UINT32_MAX;

// What the numbers of a part mean among all ranks.
struct Meaning {
  std::span<const int> ranks;                // by number in the part: the rank
  std::function<uint32_t(uint32_t)> chunk;   // chunk of the part's data -> of the whole's. kNoChunk: there is none; steps on it are left out
  std::function<Ref(uint32_t)> input, output;  // chunk of the whole's data -> where the part's input or output has it
  bool completes = false;                    // what the part finishes is the whole's result, not a partial one
};

// Appends the part's steps. Its messages have one chunk each, and it uses neither scratch nor windows.
void add_part(Builder& whole, const Program& part, const Meaning& meaning);

}  // namespace muster
