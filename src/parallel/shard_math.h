// What an optimizer computes, element by element, on parameters and gradients of float16, bfloat16 or
// float32. Each element's result depends on that element alone, so it is the same however a model is cut into
// shards.
#pragma once

#include <cstddef>
#include <cstdint>

#include "muster/zero.h"

namespace muster {

// to += from, rounded to the type.
void add_elements(void* to, const void* from, size_t n, DataType type);
// In float64; infinite or NaN exactly if an element is. In blocks of kSquaresBlock elements, one after the
// other; element i of a block is added to sum i % kSquaresLanes in order, and of those the second half to the
// first until one is left: an order that vectors and GPUs can keep.
inline constexpr size_t kSquaresLanes = 256, kSquaresBlock = 64 * kSquaresLanes;
double sum_of_squares(const void* x, size_t n, DataType type);
void round_elements(const float* from, void* to, size_t n, DataType type);

// What an AdamW step is for every element. `step` counts from 1.
struct AdamStep {
  zero::AdamW adam;
  int64_t step = 1;
  float gradient_factor = 1;
};
// What it comes to for every element, each rounded to float32 once.
struct AdamFactors {
  float gradient, beta1, rest1, beta2, rest2, correct1, correct2, keep, learning_rate, epsilon;
};
AdamFactors adam_factors(const AdamStep& s);
// float32 parameters are their own master copy: `master` is then null.
void adam_step(const AdamStep& s, void* parameters, const void* gradients, float* master, float* first,
               float* second, size_t n, DataType type);

}  // namespace muster
