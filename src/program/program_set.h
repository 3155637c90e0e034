// A collective's programs as files hold them: those of all ranks, and what is to be known of them before they are run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace muster {

struct ProgramSet {
  std::string name;               // that of every program, too (Program::algorithm)
  std::string idea;               // one line for people; may be empty
  bool in_place = true;           // right when input and output share memory, too
  uint64_t min_bytes = 0;         // of a call: bytes of the larger of a rank's two buffers, as benchmarks count a size
  uint64_t max_bytes = UINT64_MAX;
  std::vector<Program> programs;  // by rank
};

// What readers of files take. They bound the memory and time of proving a set: a cell of the checker is a chunk's part
// on a rank, its clocks are the square of all channels.
constexpr size_t kMostProgramBytes = 64 << 20;  // of a file
constexpr size_t kMostProgramRanks = 1024;
constexpr size_t kMostProgramSteps = 400'000;   // of all ranks
constexpr size_t kMostProgramPieces = 4 << 20;  // of all steps, times parts
constexpr size_t kMostProgramCells = 2 << 20;   // chunks of all buffers of all ranks, times parts
constexpr size_t kMostProgramChannels = 4096;   // of all ranks
constexpr size_t kMostProgramParts = 64;
constexpr size_t kMostProgramLanes = 64;        // between two ranks, per direction
constexpr size_t kMostProgramRefs = 64;         // sources of one step, and destinations: what the executor takes
constexpr size_t kMostProgramName = 200;        // bytes

// Whether a program may have this name: no control characters, commas or blanks at its ends, 1 to kMostProgramName bytes.
bool is_program_name(std::string_view name);

// How many lanes between two ranks the programs use.
int lanes_of(const ProgramSet& set);

}  // namespace muster
