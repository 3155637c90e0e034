// What the ranks of a communicator tell each other of their GPUs, so that all plan alike.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "plan/links.h"

namespace muster::cuda {

// A rank's. Plain bytes, in cards.
struct GpuFacts {
  char bus[16];
  int32_t host;    // the first rank that shares memory with it
  int32_t sm;      // compute capability, times ten
  int32_t blocks;  // of kernels, of any ranks, that it holds at once
};
// Loads the kernels, since peers may wait in theirs from then on.
GpuFacts facts_of(int device);

// How many blocks a rank's kernel may have, on any of the GPUs, so that those of all ranks run at once: they
// wait for each other. Throws invalid_usage where a GPU hasn't room for one block of each of its ranks.
int blocks_of_rank(std::span<const GpuFacts> gpus, const std::string& communicator);

// What joins them (links_between), within what they are themselves. `detours`: some messages go by way of host memory.
Links links_of_gpus(Links links, std::span<const GpuFacts> gpus, bool detours);

}  // namespace muster::cuda
