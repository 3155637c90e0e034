#include "program/program_set.h"

#include <algorithm>

#include "base/text.h"

namespace muster {

bool is_program_name(std::string_view name) {
  return !name.empty() && name.size() <= kMostProgramName && trim(name) == name &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 127 && c != ','; });
}

int lanes_of(const ProgramSet& set) {
  int lanes = 0;
  for (const Program& p : set.programs)
    for (const Channel& c : p.channels)
      for (const Loop& l : c.loops)
        for (const Step& s : l.steps)
          for (const auto* refs : {&s.sources, &s.destinations})
            for (const Ref& r : *refs)
              if (r.kind == Ref::Kind::slot) lanes = std::max(lanes, r.lane + 1);
  return lanes;
}

}  // namespace muster
