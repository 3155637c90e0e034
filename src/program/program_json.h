// Programs as JSON, complete: what is written and read again is the same. Schema "programs" 1; docs/programs.md, "Your own
// programs", explains it to those who write it by hand or from a generator.
#pragma once

#include <string>
#include <string_view>

#include "program/program_set.h"

namespace muster {

constexpr int kProgramJsonVersion = 1;

// Throws invalid_argument for what the schema has no words for: programs of messages (send_recv), channels of different
// numbers of parts.
std::string write_program_json(const ProgramSet& set);

// Reads what write_program_json or a person wrote. The programs can be anything that can be said: check() them before use.
// `name` is the file's. Throws invalid_argument with FILE:LINE:COLUMN and the place, such as ranks[3].channels[0].steps[7].
ProgramSet read_program_json(std::string_view text, const std::string& name);

}  // namespace muster
