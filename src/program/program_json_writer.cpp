// One line per step, so that files can be compared and edited by hand.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "program/program_json.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Ref& r) {
  static constexpr const char* buffers[] = {"input", "output", "scratch"};
  switch (r.kind) {
    case Ref::Kind::slot:
      return r.lane ? fmt::format("peer {} lane {}", r.peer, r.lane) : fmt::format("peer {}", r.peer);
    case Ref::Kind::window:
      return fmt::format("window {} {}[{}]", r.peer, buffers[r.buffer], r.chunk);
    case Ref::Kind::local:
      break;
  }
  return fmt::format("{}[{}]", buffers[r.buffer], r.chunk);
}

// A text where there is one.
Json json_of(const std::vector<Ref>& refs) {
  if (refs.size() == 1) return text_of(refs[0]);
  Json all = Json::array();
  for (const Ref& r : refs) all.push_back(text_of(r));
  return all;
}

Json json_of(const Step& s) {
  Json j = Json::object();
  if (!s.sources.empty()) j["from"] = json_of(s.sources);
  if (!s.destinations.empty()) j["to"] = json_of(s.destinations);
  if (s.pieces == 0) {
    j["pieces"] = 0;
    return j;
  }
  j["extent"] = s.extent;
  if (s.pieces != 1) j["pieces"] = s.pieces;
  if (s.finish) j["finish"] = true;
  return j;
}

std::string steps_text(const Loop& loop, const std::string& margin) {
  if (loop.steps.empty()) return "[]";
  std::string text = "[";
  for (const Step& s : loop.steps)
    text += fmt::format("{}\n{}  {}", &s == loop.steps.data() ? "" : ",", margin, json_of(s).dump());
  return text + "\n" + margin + "]";
}

std::string channel_text(const Channel& c, uint16_t parts) {
  const std::string part = parts > 1 ? fmt::format("\"part\": {}, ", c.part) : "";
  if (c.loops.size() == 1) return fmt::format("{{{}\"steps\": {}}}", part, steps_text(c.loops[0], "      "));
  std::string loops;
  for (const Loop& l : c.loops)
    loops += fmt::format("{}\n        {}", loops.empty() ? "" : ",", steps_text(l, "        "));
  return fmt::format("{{{}\"loops\": [{}]}}", part, loops.empty() ? "" : loops + "\n      ");
}

}  // namespace

std::string write_program_json(const ProgramSet& set) {
  if (set.programs.empty()) fail(Result::invalid_argument, "programs of no ranks can't be written");
  const Program& first = set.programs[0];
  if (first.coll >= Coll::send_recv)
    fail(Result::invalid_argument, "programs of {} can't be written: the schema is for collectives", name_of(first.coll));
  uint16_t parts = 0;
  for (const Program& p : set.programs)
    for (const Channel& c : p.channels) {
      if (parts && c.parts != parts)
        fail(Result::invalid_argument, "{} {}: channels of {} and of {} parts can't be written in one file", set.name,
             name_of(first.coll), parts, c.parts);
      parts = c.parts;
    }

  const auto member = [](const char* key, const Json& value) { return fmt::format("  \"{}\": {},\n", key, value.dump()); };
  std::string text = "{\n" + member("muster", "programs") + member("version", kProgramJsonVersion) + member("name", set.name);
  if (!set.idea.empty()) text += member("idea", set.idea);
  text += member("collective", name_of(first.coll));
  if (rooted(first.coll)) text += member("root", first.root);
  if (splits_count(first.coll)) text += member("chunks", first.chunks);
  if (parts > 1) text += member("parts", parts);
  if (!set.in_place) text += member("in_place", false);
  if (set.min_bytes != 0) text += member("min_bytes", set.min_bytes);
  if (set.max_bytes != UINT64_MAX) text += member("max_bytes", set.max_bytes);
  text += "  \"ranks\": [";
  for (const Program& p : set.programs) {
    text += fmt::format("{}\n    {{", &p == &first ? "" : ",");
    if (p.buffer_chunks[kScratch]) text += fmt::format("\"scratch\": {}, ", p.buffer_chunks[kScratch]);
    text += "\"channels\": [";
    for (const Channel& c : p.channels)
      text += fmt::format("{}\n      {}", &c == p.channels.data() ? "" : ",", channel_text(c, parts));
    text += "]}";
  }
  return text + "\n  ]\n}\n";
}

}  // namespace muster
