#include "program/collective.h"

#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace muster {

const char* name_of(Coll c) {
  static constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather",   "broadcast",        "reduce",
                                          "all_to_all", "gather",         "scatter",      "send_recv",        "all_gather_v",
                                          "reduce_scatter_v", "all_to_all_v", "gather_v", "scatter_v"};
  static_assert(std::size(names) == kColls);
  const auto i = static_cast<unsigned>(c);
  return i < kColls ? names[i] : "?";
}

Coll collective_named(std::string_view name) {
  const auto plain = [](std::string_view text) {
    std::string letters = lower(text);
    std::erase(letters, '_');
    return letters;
  };
  std::vector<std::string_view> known;
  for (int i = 0; i < static_cast<int>(Coll::send_recv); ++i) {
    const Coll coll = static_cast<Coll>(i);
    known.push_back(name_of(coll));
    if (plain(name) == plain(known.back())) return coll;
  }
  fail(Result::invalid_argument, "'{}' is no collective. There are: {}", printable(name, 60), fmt::join(known, ", "));
}

}  // namespace muster
