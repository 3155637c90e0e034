// Findings made while something long is read: the same thing said of many places becomes one finding with a
// count.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "topology/finding.h"

namespace muster::topology {

class Notes {
 public:
  // Whether this was said before; if so it is counted, and nothing need be added. `kind` tells what counts as
  // the same thing within an id.
  bool again(std::string_view id, std::string_view kind) {
    auto [at, first] = places_.try_emplace(fmt::format("{}\n{}", id, kind), notes_.size());
    if (!first) ++notes_[at->second].times;
    return !first;
  }
  void add(Finding f) { notes_.push_back({std::move(f), 1}); }
  // In the order in which they were first made; `where` is the first place.
  std::vector<Finding> take() {
    std::vector<Finding> r;
    for (Note& n : notes_) {
      if (n.times > 1) n.finding.text += fmt::format(" (and {} more like it)", n.times - 1);
      r.push_back(std::move(n.finding));
    }
    notes_.clear();
    places_.clear();
    return r;
  }

 private:
  struct Note {
    Finding finding;
    int times;
  };
  std::vector<Note> notes_;
  std::map<std::string, size_t> places_;
};

}  // namespace muster::topology
