// From a program to what the kernels read.
#pragma once

#include <cstddef>
#include <vector>

#include "exec/chunk_layout.h"
#include "exec/cuda/kernel_plan.h"
#include "exec/cuda/mailbox.h"
#include "plan/planner.h"
#include "plan/protocol.h"
#include "program/program.h"

namespace muster::cuda {

struct KernelImage {
  std::vector<KernelChannel> channels;
  std::vector<KernelLoop> loops;
  std::vector<KernelStep> steps;
  std::vector<KernelPlace> places;
  std::vector<KernelUse> uses;
  std::vector<uint64_t> lengths;
  std::vector<uint64_t> offsets;
  CallShape call;
  uint64_t tile = 0;  // elements
  uint64_t scratch_bytes = 0;
  uint64_t longest_pass = 0;  // bytes that a block moves at once, at most
  std::vector<uint64_t> sent;  // bytes that one call moves to or from each peer, by rank: its slots and windows
  uint32_t divisor = 0;
  bool windows = false;  // a step names peers' buffers
  bool lines = false;    // messages are of lines
  bool own_lanes = true;  // channel i has connections of lane i only
};

// `tile_bytes`: of one chunk, per channel (Choice::tile_bytes). `table`: the chunks of a V-variant, whose
// `call` is that of the even collective. `protocol`: ll or simple. Throws invalid_usage for a program that
// kernels can't run: too many places in a step, or channels, or windows with ll; internal_error for messages
// longer than a slot.
KernelImage compile_for_kernels(const Program& program, const CallShape& call, size_t tile_bytes,
                                const MailboxShape& mailbox, const ChunkTable* table = nullptr,
                                Protocol protocol = Protocol::simple);

}  // namespace muster::cuda
