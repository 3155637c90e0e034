// How the ranks of a host come to the memory that they share: one makes it, and hands it to the others.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "comm/card.h"
#include "comm/state.h"

namespace muster {

// All ranks say how the last step went, and fail together.
void agree(Bootstrap& bootstrap, const std::string& problem, Deadline deadline);
// Gives the communicator its segment, its transport and, where windows are possible, the other ranks' arenas.
void share_memory(Communicator::Impl& impl, const std::vector<Card>& cards, Deadline deadline);

}  // namespace muster
