// What helpers with temporary buffers, or with work after a collective, need of their calls.
#include "parallel/completing_calls.h"

#include "base/error.h"
#include "comm/open_group.h"

namespace muster {

void require_completing_calls(const char* helper, const Communicator& communicator) {
  if (group_is_open())
    fail(Result::invalid_usage, "{} on communicator {} inside a group, which would run its collectives only after it. Call it before group_start",
         helper, communicator.name());
  if (!communicator.blocking())
    fail(Result::invalid_argument, "{} on communicator {}, which doesn't block; one that does is wanted", helper, communicator.name());
}

}  // namespace muster
