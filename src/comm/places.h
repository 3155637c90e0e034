// Who and where a communicator's ranks are, and what follows for planning and waiting.
#pragma once

#include <cstdint>

#include "comm/state.h"

namespace muster {

// Names this process's address space; a forked child has another.
uint64_t process_token();

// Fills what follows from the profiles of the communicator's ranks: ranks (but their arenas), the machine's
// part of inputs, and how to wait.
void take_places(Communicator::Impl& comm);
// Begins with the tuner plugin of this rank, if it has one; after take_places. Throws what Tuner throws.
void start_tuner(Communicator::Impl& comm);
// Makes the exchange of buffers that goes before calls through windows.
void prepare_windows(Communicator::Impl& comm);

}  // namespace muster
