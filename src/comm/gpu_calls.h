// Calls on GPU memory: what they become for the GPU.
#pragma once

#include "comm/state.h"

namespace muster {

// Of the calls of one group that send or receive GPU memory.
GpuGroup group_of(const std::vector<Call>& calls);
// A V-variant that only moves: what this rank sends to each, and receives from it. `input`: where its send
// buffer's contents are.
GpuGroup messages_of(const Call& call, const std::byte* input, const Communicator::Impl& comm,
                     uint64_t fingerprint);

}  // namespace muster
