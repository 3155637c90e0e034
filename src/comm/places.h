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
// What its ranks on this host have to share, once inputs are known.
Segment::Geometry segment_geometry(const Communicator::Impl& comm);
// Gives the communicator, which has ranks, the memory that its host shares, and what follows: what ranks publish, and
// connections.
void publish_in(Communicator::Impl& comm, std::shared_ptr<Segment> segment);
// From here on lanes of the network to other hosts have none of those connections.
int first_free_lane(const Communicator::Impl& comm);
// Begins with the tuner plugin of this rank, if it has one; after take_places. Throws what Tuner throws.
void start_tuner(Communicator::Impl& comm);
// An all-gather of so many bytes of each rank, by the communicator's connections.
std::unique_ptr<CompiledPlan> make_exchange(const Communicator::Impl& comm, uint64_t bytes);
// Makes the exchange of buffers that goes before calls through windows: of all ranks, or of those of each host.
void prepare_windows(Communicator::Impl& comm, bool inside_hosts);

}  // namespace muster
