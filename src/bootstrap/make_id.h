// Making the ids that name communicators to be.
#pragma once

#include "base/options.h"
#include "bootstrap/address.h"
#include "muster/muster.h"

namespace muster {

// An id whose root is in this process. `others`: an address that the other ranks know as this host's, if any: its
// interface is the root's where nobody named one.
UniqueId make_rooted_id(const Options& options, const Address& others = {});
// The id that NCCL_COMM_ID stands for, the same on every rank; generation tells several in a row apart.
UniqueId make_comm_id(const Options& options, uint32_t generation);

}  // namespace muster
