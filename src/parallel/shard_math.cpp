#include "parallel/shard_math.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "parallel/element_type.h"

namespace muster {

void add_elements(void* to, const void* from, size_t n, DataType type) {
  with_element(type, [&]<class E>() {
    E* const a = static_cast<E*>(to);
    const E* const b = static_cast<const E*>(from);
    for (size_t i = 0; i < n; ++i) a[i] = from_float<E>(to_float(a[i]) + to_float(b[i]));
  });
}

double sum_of_squares(const void* x, size_t n, DataType type) {
  return with_element(type, [&]<class E>() {
    double sum = 0;
    const E* values = static_cast<const E*>(x);
    for (size_t left = n; left > 0;) {
      const size_t block = std::min(left, kSquaresBlock);
      double lanes[kSquaresLanes] = {};
      for (size_t begin = 0; begin < block; begin += kSquaresLanes)
        for (size_t i = 0; i < std::min(kSquaresLanes, block - begin); ++i) {
          const double v = to_float(values[begin + i]);
          lanes[i] += v * v;
        }
      for (size_t half = kSquaresLanes / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; ++i) lanes[i] += lanes[half + i];
      sum += lanes[0];
      values += block;
      left -= block;
    }
    return sum;
  });
}

void round_elements(const float* from, void* to, size_t n, DataType type) {
  with_element(type, [&]<class E>() {
    E* const out = static_cast<E*>(to);
    for (size_t i = 0; i < n; ++i) out[i] = from_float<E>(from[i]);
  });
}

AdamFactors adam_factors(const AdamStep& s) {
  const zero::AdamW& a = s.adam;
  const auto corrected = [&](float beta) {
    return static_cast<float>(1 - std::pow(static_cast<double>(beta), static_cast<double>(s.step)));
  };
  return {s.gradient_factor,  a.beta1,
          1 - a.beta1,        a.beta2,
          1 - a.beta2,        corrected(a.beta1),
          corrected(a.beta2), 1 - a.learning_rate * a.weight_decay,
          a.learning_rate,    a.epsilon};
}

void adam_step(const AdamStep& s, void* parameters, const void* gradients, float* master, float* first,
               float* second, size_t n, DataType type) {
  const AdamFactors factors = adam_factors(s);
  with_element(type, [&]<class E>() {
    E* const w = static_cast<E*>(parameters);
    const E* const gradient = static_cast<const E*>(gradients);
    const AdamFactors f = factors;  // a copy that stores to the arrays can't change
    float* exact = master;
    if constexpr (std::is_same_v<E, float>) exact = w;
    for (size_t i = 0; i < n; ++i) {
      const float g = to_float(gradient[i]) * f.gradient;
      first[i] = f.beta1 * first[i] + f.rest1 * g;
      second[i] = f.beta2 * second[i] + f.rest2 * g * g;
      exact[i] = exact[i] * f.keep -
                 f.learning_rate * (first[i] / f.correct1) / (std::sqrt(second[i] / f.correct2) + f.epsilon);
      if constexpr (!std::is_same_v<E, float>) w[i] = from_float<E>(exact[i]);
    }
  });
}

}  // namespace muster
