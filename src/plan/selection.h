// The algorithms that one call may use: a bit each, in the order in which the table has those of its collective.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plan/planner.h"

namespace muster {

// `text`: names separated by commas, in any case, or beginnings of names; with ^ in front all but these. NCCL's "ring" also
// stands for the chain, which is its ring of broadcast and reduce, and its protocols (ring_ll128) for themselves without: there
// are none here. Other names of NCCL's select nothing. Throws invalid_argument, naming those that there are, when nothing is
// selected. 0 for an empty text.
uint16_t parse_selection(Coll coll, std::string_view text);

bool is_allowed(const CallShape& call, const Algorithm& algorithm);
// CallShape::allowed for this algorithm alone.
uint16_t only(const Algorithm& algorithm);
// "ring or direct"; empty: all.
std::string names_of_allowed(const CallShape& call);

}  // namespace muster
