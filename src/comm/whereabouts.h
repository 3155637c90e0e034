// What a rank tells through shared memory beside the calls it publishes: who it is, and what it waits for.
// `muster status` reads it.
#pragma once

#include <chrono>

#include "comm/state.h"

namespace muster {

// Once, before others may rely on it. `parent`: what the communicator is made of; null: of none.
void introduce_rank(Communicator::Impl& comm, const Communicator::Impl* parent);

// Called now and then in a long wait; `peer`: -1 where it isn't one alone. For the thread that runs calls.
void note_wait(Communicator::Impl& comm, RankWait::Kind kind, int peer, std::chrono::nanoseconds waited);
void forget_wait(Communicator::Impl& comm);

}  // namespace muster
