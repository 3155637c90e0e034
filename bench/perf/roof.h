// How fast a collective could be at best on this host: its bytes at the speed at which the cores copy memory.
//
//   a collective among ranks of one host must, out of place, at least read what is sent once (sum over the
//   ranks that send) and write each result once (sum over the ranks that get one). With S the bytes of one
//   rank's data and n ranks that is 2 n S for an all-reduce, (1 + n) S for a broadcast, ...: least_traffic
//   counts it from what the program verifies. The copying speed is measured here, by all ranks at once, each
//   between its own buffers, for a moment before the sweep; a copy of B bytes counts as 2 B, read and
//   written.
//
//   roof: least_traffic / copying speed = the time that memory allows.
//
// Data that stays in a cache from one call to the next isn't held by this roof, nor is what is read more
// often than it is written; a result above it says so.
#pragma once

#include <cstddef>
#include <span>

#include "perf/collective.h"

namespace muster::perf {

struct MemoryTraffic {
  double read = 0, written = 0;  // bytes, of all ranks together
};
MemoryTraffic least_traffic(const Collective& collective, size_t bytes, size_t element, int nranks, int root);

// Copies `bytes` from one place to another, in pieces, round and round.
struct CopyLoop {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t bytes = 0, at = 0;
  bool past_caches = false;  // written with non-temporal stores, where the processor has them

  void step(size_t piece);  // copies the next `piece` bytes
};

// Runs every loop on a thread of its own (the first on the caller's) for so long. Returns bytes read and
// written per second, of all loops together.
double copy_rate(std::span<CopyLoop> loops, size_t piece, double seconds);

}  // namespace muster::perf
