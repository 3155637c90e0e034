// What a rank has sent, counted by the library itself, so that a formula can be held against it.
#pragma once

#include <cstdint>

#include "muster/muster.h"

namespace muster {

// Bytes of users' data that one rank has moved to or from others, by what they went over. Each byte of a
// message counts at the rank that sends it. Not counted: what the rank copies within its own memory, tokens,
// and what the library says for itself (fingerprints, credits, where buffers are).
struct BytesSent {
  uint64_t shared_memory = 0;  // sent to ranks of this host through shared memory
  // Loaded from, or stored to, buffers of ranks of this host: windows (mem_alloc, threads), puts.
  uint64_t direct = 0;
  uint64_t network = 0;  // sent to ranks of other hosts, from host memory or GPUs
  uint64_t gpu = 0;      // sent from GPU memory to GPUs of other ranks of this host: NVLink, PCIe
  uint64_t total() const { return shared_memory + direct + network + gpu; }
  friend BytesSent operator+(const BytesSent& a, const BytesSent& b) {
    return {a.shared_memory + b.shared_memory, a.direct + b.direct, a.network + b.network, a.gpu + b.gpu};
  }
  friend BytesSent operator-(const BytesSent& a, const BytesSent& b) {
    return {a.shared_memory - b.shared_memory, a.direct - b.direct, a.network - b.network, a.gpu - b.gpu};
  }
  friend bool operator==(const BytesSent&, const BytesSent&) = default;
};

// Of the calls that this communicator's rank has begun since it was made; puts count when they are done.
// Communicators made of it count for themselves. invalid_argument: an empty communicator. Any thread; calls
// on streams of the host are counted as they run, those on GPU memory when they are given to their stream,
// and captured ones that once, however often they are replayed.
MUSTER_API BytesSent bytes_sent(const Communicator& communicator);

}  // namespace muster
