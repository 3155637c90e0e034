// Collectives on GPU memory that copy engines run: which they are, and what each rank copies.
#pragma once

#include <string>
#include <vector>

#include "comm/gpu_windows.h"
#include "comm/state.h"

namespace muster {

// How copy engines run a call: into the window in which its receive buffer lies, at the same place on all ranks.
struct CopyPlan {
  GpuWindowPlace to;    // null: they don't
  std::string why_not;  // empty: they do, or nobody asked
  // What ranks must agree on beside the call's shape.
  uint64_t mark() const { return to.window ? (uint64_t{to.window->number} + 1) << 48 ^ to.offset : 0; }
};
CopyPlan plan_copies(Communicator::Impl& comm, const Call& call);

// Of this rank; `input`: where its send buffer's contents are.
std::vector<GpuCopies::Copy> copies_of(const Communicator::Impl& comm, const Call& call, const CopyPlan& plan,
                                       const std::byte* input);

// Says how the call runs: for MUSTER_EXPLAIN, and in the log what keeps a wanted copy engine out. Once each.
void explain_copies(Communicator::Impl& comm, const Call& call, const CopyPlan& plan);

}  // namespace muster
