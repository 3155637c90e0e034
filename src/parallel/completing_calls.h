// What helpers with temporary buffers, or with work after a collective, need of their calls.
#pragma once

#include "muster/muster.h"

namespace muster {

// Throws unless calls on the communicator are over when they return: inside a group they run at its end, and where a
// communicator doesn't block, some time later.
void require_completing_calls(const char* helper, const Communicator& communicator);

}  // namespace muster
