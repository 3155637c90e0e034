// How the ranks of a host come to the memory that they share: one makes it, and hands it to the others.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "comm/state.h"

namespace muster {

// All ranks say how the last step went, and fail together.
void agree(Bootstrap& bootstrap, const std::string& problem, Deadline deadline);
// Gives a communicator that isn't made of another one its host's segment, its transport and, where all ranks of its host
// have them, their arenas.
void share_memory(Communicator::Impl& impl, Deadline deadline);

}  // namespace muster
