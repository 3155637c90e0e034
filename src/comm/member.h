// Making one rank's part of a communicator out of another one.
#pragma once

#include <memory>

#include "comm/exchange.h"

namespace muster {

// What a rank asks for: ranks with one color become one communicator, ordered by key; -1: none for this rank.
struct Seat {
  int color = 0, key = 0;
};
// All ranks of the exchange call it. `child` is empty, or null for color -1. Afterwards all of its ranks are
// ready, and child->complete() is left to the caller; or all throw the same.
void make_member(Exchange& exchange, Communicator::Impl& parent,
                 const std::shared_ptr<Communicator::Impl>& child, Seat seat);

}  // namespace muster
