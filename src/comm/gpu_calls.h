// Calls on GPU memory: what they become for the GPU.
#pragma once

#include <optional>

#include "comm/state.h"

namespace muster {

// Impl::gpu_device before a call has decided it, where a GPU was current when the communicator was made: that
// is where calls run that have nothing of this rank's.
constexpr int undecided_gpu(int current) { return -2 - current; }
constexpr std::optional<int> gpu_made_on(int undecided) {
  return undecided <= -2 ? std::optional<int>(-2 - undecided) : std::nullopt;
}

// Of the calls of one group that send or receive GPU memory.
GpuGroup group_of(const std::vector<Call>& calls);
// A V-variant that only moves: what this rank sends to each, and receives from it. `input`: where its send
// buffer's contents are.
GpuGroup messages_of(const Call& call, const std::byte* input, const Communicator::Impl& comm,
                     uint64_t fingerprint);

}  // namespace muster
