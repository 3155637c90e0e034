// Element-wise kernels on host memory: combine k sources into d destinations in one pass, at the best instruction set
// of the machine (Google Highway, chosen at run time).
//
// Numeric rules (one test each in tests/kernels_test.cpp):
//  - sources are combined left to right: ((s0 op s1) op s2) ...
//  - float16, bfloat16 and both float8 are combined in float32 and rounded once, to nearest even, when stored
//  - float8 stores saturate to the largest finite value; infinity only if an input was infinite (e5m2); e4m3 has none
//  - integer sum and prod wrap; integer avg divides after the sum, truncating toward zero; float avg divides once
//  - a product of finite float8 never turns infinite on the way, so that a later factor of 0 gives 0
//  - min / max give NaN if any input is NaN, and order -0 before +0
//  - a weighted sum rounds the product, then the sum (no fused multiply-add): every instruction set gives the same
//  - bitwise and, or, xor are for integer types; logical ones take what isn't zero for true (NaN is, -0 isn't) and give 0 or
//    1 in the element type, for one source, too
//  - a NaN is the same quiet NaN whatever the inputs' were, so that ranks that combine for themselves get the same bits
// All functions may be called from any thread at any time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "muster/types.h"

namespace muster {

// Bits of `weighted` and `streamed` name sources and destinations 0 .. 63; further ones are unweighted, not streamed.
struct ReduceArgs {
  const void* const* sources = nullptr;
  uint32_t nsources = 0;          // >= 1
  void* const* destinations = nullptr;
  uint32_t ndestinations = 0;     // >= 1
  size_t count = 0;               // elements
  uint64_t weighted = 0;          // bit j: source j is multiplied by `weight` before it is combined (pre_mul_sum)
  uint64_t weight_bits = 0;       // the weight in the element type (see ReduceOp::scalar_bits)
  uint32_t divisor = 0;           // > 0: divide the combined value (avg)
  uint64_t streamed = 0;          // bit d: destination d is written with non-temporal stores (fenced before return)
};

// Destinations may equal sources exactly (in place) but not overlap them partly; no alignment is needed.
using ReduceFn = void (*)(const ReduceArgs&);

// avg and pre_mul_sum are sum with divisor / weights. Never null; throws invalid_argument for what is no type or op, and for
// bitwise operations on floats.
ReduceFn reduce_kernel(DataType type, RedOp op);

// source -> every destination. A destination equal to the source is skipped. bit d of streamed: non-temporal stores.
void copy_kernel(void* const* destinations, uint32_t ndestinations, const void* source, size_t bytes, uint64_t streamed);

// Names of the instruction sets compiled in that this machine can run, best first; and, for tests, the kernel of one.
int kernel_target_count();
const char* kernel_target_name(int target);
ReduceFn reduce_kernel_of_target(int target, DataType type, RedOp op);

}  // namespace muster
