// Programs that only copy within a rank, as those of one rank do: the runtime's copies need no kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "exec/cuda/compile.h"

namespace muster::cuda {

// From one of the rank's buffers (KernelPlace) to another.
struct PlainCopy {
  uint32_t from = 0, to = 0;
  uint64_t from_offset = 0, to_offset = 0, bytes = 0;
};

// What the program does as copies, those that continue each other as one; nullopt: it sends, receives or computes.
std::optional<std::vector<PlainCopy>> plain_copies_of(const KernelImage& image);

}  // namespace muster::cuda
