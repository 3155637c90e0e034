#include "plan/custom_programs.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "base/text_position.h"
#include "program/msccl_xml.h"
#include "program/program_json.h"
#include "topology/file.h"
#include "topology/read.h"

namespace muster {
namespace {

template <class F>
void for_each_step(const ProgramSet& set, F f) {
  for (const Program& p : set.programs)
    for (const Channel& c : p.channels)
      for (const Loop& l : c.loops)
        for (const Step& s : l.steps) f(s);
}

bool uses_windows(const ProgramSet& set) {
  bool windows = false;
  for_each_step(set, [&](const Step& s) {
    for (const auto* refs : {&s.sources, &s.destinations})
      for (const Ref& r : *refs) windows = windows || r.kind == Ref::Kind::window;
  });
  return windows;
}

uint32_t most_pieces(const ProgramSet& set) {
  uint32_t most = 1;
  for_each_step(set, [&](const Step& s) { most = std::max(most, s.pieces); });
  return most;
}

int most_channels(const ProgramSet& set) {
  size_t most = 0;
  for (const Program& p : set.programs) most = std::max(most, p.channels.size());
  return static_cast<int>(most);
}

// What a file is taken for is told by its first character, and said with whatever is wrong in it.
ProgramSet read_program_set(std::string_view text, const std::string& file) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  constexpr const char* kWanted = "Wanted are programs as JSON, which begins with {, or MSCCL's XML, which begins with <algo (docs/programs.md)";
  const std::string name = file == "-" ? "standard input" : printable(file, 300);
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const std::string_view begin = trim(text);
  const topology::Format other = topology::recognise(text);
  if (other != topology::Format::unknown)
    fail(Result::invalid_argument, "{} is a topology ({}) and has no programs. {}", name, topology::name_of(other), kWanted);
  if (begin.empty()) fail(Result::invalid_argument, "{} is {}. {}", name, topology::seems_to_be(text), kWanted);
  const bool xml = begin.front() == '<';
  if (!xml && begin.front() != '{' && begin.front() != '[' && begin.front() != '/') {
    const TextPosition at = position_of(text, static_cast<size_t>(begin.data() - text.data()));
    fail(Result::invalid_argument, "{}:{}:{}: no program begins so, it is {}. {}", name, at.line, at.column, topology::seems_to_be(text), kWanted);
  }
  try {
    return xml ? read_msccl_xml(text, name) : read_program_json(text, name);
  } catch (const Error& e) {
    fail(e.code(), "{} (taken for {})", e.what(), xml ? "MSCCL's XML, as it begins with <" : "programs as JSON");
  }
}

// FNV-1a. It tells files apart that differ by mistake.
uint64_t hash_of(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325ULL;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return h;
}

}  // namespace

CustomProgram::CustomProgram(std::string from, ProgramSet from_set, bool rank_order)
    : file(std::move(from)),
      set(std::move(from_set)),
      idea(fmt::format("custom, from {}{}{}", printable(file, 300), set.idea.empty() ? "" : ": ", set.idea)),
      algorithm{set.name.c_str(), set.programs[0].coll, nullptr, false, uses_windows(set), rank_order, idea.c_str(), set.in_place},
      lanes(lanes_of(set)),
      pieces(most_pieces(set)),
      channels(most_channels(set)) {}

ProgramSet load_program_set(const std::string& file) { return read_program_set(topology::load_file(file, kMostProgramBytes), file); }

CheckResult prove(const ProgramSet& set) {
  constexpr int kTiles = 3;
  const auto chunks = static_cast<int>(set.programs[0].chunks);
  // All as long; each shorter than the one before; only the first or the last has anything.
  std::vector<std::vector<int>> lengths(4);
  for (int c = 0; c < chunks; ++c) {
    lengths[1].push_back(std::max(0, kTiles - c));
    lengths[2].push_back(c == 0 ? kTiles : 0);
    lengths[3].push_back(c + 1 == chunks ? 1 : 0);
  }
  bool rank_order = true;
  for (const bool in_place : {false, true}) {
    if (in_place && !set.in_place) break;
    for (const auto& l : lengths) {
      CheckResult result = check(set.programs, {.slots = 2, .tiles = kTiles, .in_place = in_place, .lengths = l});
      if (!result.ok) {
        if (!l.empty()) result.message += " (where chunks have different lengths)";
        if (in_place) result.message += " (where input and output share memory; \"in_place\": false says that it is for two buffers)";
        return result;
      }
      rank_order = rank_order && result.rank_order;
    }
  }
  return {true, {}, rank_order};
}

CustomPrograms load_custom_programs(const std::string& files) {
  CustomPrograms all;
  if (trim(files).empty()) return all;
  for (const std::string_view part : split(files, ',')) {
    const std::string file(trim(part));
    if (file.empty() || file == "-") fail(Result::invalid_usage, "MUSTER_PROGRAM='{}': '{}' names no file", printable(files, 300), file);
    std::string text;
    ProgramSet set;
    try {
      text = topology::load_file(file, kMostProgramBytes);
      set = read_program_set(text, file);
    } catch (const Error& e) {
      fail(Result::invalid_usage, "MUSTER_PROGRAM: {}", e.what());
    }
    const CheckResult proof = prove(set);
    if (!proof.ok) fail(Result::invalid_usage, "MUSTER_PROGRAM: {} is wrong: {}", printable(file, 300), proof.message);
    all.programs.push_back(std::make_shared<const CustomProgram>(file, std::move(set), proof.rank_order));
    all.contents += fmt::format("{}{:016x}", all.contents.empty() ? "" : " ", hash_of(text));
  }
  return all;
}

}  // namespace muster
