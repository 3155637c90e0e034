// What the kernel of sends and receives reads: a group of messages in plain structs, and one call's
// arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/cuda/kernel_plan.h"

namespace muster::cuda {

// Of a rank: with those of its peers all must be resident at once.
inline constexpr uint32_t kMostMessageBlocks = 8;
// That one block keeps going; shared memory is bounded by it.
inline constexpr uint32_t kMostFlowsOfBlock = 64;

struct KernelMessage {
  const std::byte* from;  // null: from the peer
  std::byte* to;          // null: to the peer
  uint64_t bytes;
  uint64_t fingerprint;
};

// Messages that follow one another: to one peer, or from one, on one lane.
struct KernelFlow {
  enum Kind : uint32_t { sends, receives, copies };
  Kind kind;
  uint32_t end;          // of `sends` and `receives`
  uint32_t first, last;  // messages
};

// By value with each launch.
struct MessageArgs {
  const KernelFlow* flows;  // block b has flows b, b + blocks ...
  const KernelMessage* messages;
  KernelEnd* ends;
  KernelReport* report;
  uint64_t slot_bytes;
  uint32_t slots;  // a power of two
  uint32_t flow_count;
};

}  // namespace muster::cuda
