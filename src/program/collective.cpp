#include "program/collective.h"

#include <iterator>

namespace muster {

const char* name_of(Coll c) {
  static constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather",   "broadcast",        "reduce",
                                          "all_to_all", "gather",         "scatter",      "send_recv",        "all_gather_v",
                                          "reduce_scatter_v", "all_to_all_v", "gather_v", "scatter_v"};
  static_assert(std::size(names) == kColls);
  const auto i = static_cast<unsigned>(c);
  return i < kColls ? names[i] : "?";
}

}  // namespace muster
