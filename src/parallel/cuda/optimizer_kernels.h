// What parallel/shard_math.h and parallel/block_quantise.h compute, on a GPU. What is returned is for
// cudaLaunchKernel; elements are float16, bfloat16 or float32, and all kernels take any grid of
// kOptimizerThreads but those that say otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "muster/types.h"
#include "parallel/shard_math.h"

namespace muster::cuda {

inline constexpr uint32_t kOptimizerThreads = 256;

struct AdamArgs {
  void* parameters;
  const void* gradients;
  float *master, *first, *second;  // master: null for float32
  uint64_t n;
  AdamFactors factors;
};
// Its argument is AdamArgs.
const void* adam_kernel(DataType type);
// to += from: void* to, const void* from, uint64_t n.
const void* add_kernel(DataType type);
// const float* from, void* to, uint64_t n.
const void* round_kernel(DataType type);
// A block per kSquaresBlock elements: const void* x, uint64_t n, double* sum of each block.
const void* squares_kernel(DataType type);

struct QuantiseArgs {
  const void* from;
  void* to;
  float* scales;  // of what is quantised, which is where `to` or `from` points
  uint64_t n;
};
// A block of threads per zero::kQuantisedBlock elements. The argument is QuantiseArgs.
const void* quantise_kernel(DataType type);
const void* dequantise_kernel(DataType type);

}  // namespace muster::cuda
