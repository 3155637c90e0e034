// A thread's group as C programs see it: an error in it doesn't end it, ncclGroupEnd does.
#pragma once

#include "nccl.h"

namespace muster::nccl {

struct CommHandle;

// A call of this thread failed with `code`: if it is in a group, what follows in the group is taken but not
// run, and its end returns the code.
void fail_group(ncclResult_t code) noexcept;
// A call on a non-blocking communicator was made; in a group its end looks how that is getting on. True: in a
// group.
bool note_nonblocking(CommHandle& comm);

}  // namespace muster::nccl
