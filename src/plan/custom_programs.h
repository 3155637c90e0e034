// Programs that a user brings (MUSTER_PROGRAM): read from files and proved before they are used, then candidates like the
// algorithms that are built in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithms.h"
#include "program/checker.h"
#include "program/program_set.h"

namespace muster {

struct CustomProgram {
  explicit CustomProgram(std::string from, ProgramSet from_set, bool rank_order);
  CustomProgram(const CustomProgram&) = delete;
  CustomProgram& operator=(const CustomProgram&) = delete;

  const std::string file;
  const ProgramSet set;
  const std::string idea;     // for people: where it comes from, and what its file says
  const Algorithm algorithm;  // how planning sees it; `make` is null, its texts are those of this
  const int lanes;            // that it needs between two ranks
  const uint32_t pieces;      // of its longest message
  const int channels;         // of the rank that has most

  int nranks() const { return static_cast<int>(set.programs.size()); }
  int root() const { return set.programs[0].root; }
};

struct CustomPrograms {
  std::vector<std::shared_ptr<const CustomProgram>> programs;  // in the order of their files
  std::string contents;  // a hash of each file's bytes, hexadecimal: equal on two ranks that have read the same
};

// A file's programs, JSON or MSCCL's XML by content. Throws invalid_argument or system_error naming file and place.
ProgramSet load_program_set(const std::string& file);

// Proves the programs of a set for few slots, several tiles, short and empty chunks, and in place if the set says so. What is
// wrong names rank, channel, loop and step.
CheckResult prove(const ProgramSet& set);

// `files`: separated by commas; none for an empty text. Throws invalid_usage naming the file for what can't be read and for
// programs that aren't right.
CustomPrograms load_custom_programs(const std::string& files);

}  // namespace muster
