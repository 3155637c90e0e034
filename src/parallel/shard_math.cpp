#include "parallel/shard_math.h"

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
    const E* const values = static_cast<const E*>(x);
    for (size_t i = 0; i < n; ++i) {
      const double v = to_float(values[i]);
      sum += v * v;
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

void adam_step(const AdamStep& s, void* parameters, const void* gradients, float* master, float* first,
               float* second, size_t n, DataType type) {
  const zero::AdamW& a = s.adam;
  const auto corrected = [&](float beta) {
    return static_cast<float>(1 - std::pow(static_cast<double>(beta), static_cast<double>(s.step)));
  };
  const float correct1 = corrected(a.beta1), correct2 = corrected(a.beta2);
  const float keep = 1 - a.learning_rate * a.weight_decay;
  with_element(type, [&]<class E>() {
    E* const w = static_cast<E*>(parameters);
    const E* const gradient = static_cast<const E*>(gradients);
    const zero::AdamW c = a;  // a copy that stores to the arrays can't change
    const float factor = s.gradient_factor;
    float* exact = master;
    if constexpr (std::is_same_v<E, float>) exact = w;
    for (size_t i = 0; i < n; ++i) {
      const float g = to_float(gradient[i]) * factor;
      first[i] = c.beta1 * first[i] + (1 - c.beta1) * g;
      second[i] = c.beta2 * second[i] + (1 - c.beta2) * g * g;
      exact[i] = exact[i] * keep -
                 c.learning_rate * (first[i] / correct1) / (std::sqrt(second[i] / correct2) + c.epsilon);
      if constexpr (!std::is_same_v<E, float>) w[i] = from_float<E>(exact[i]);
    }
  });
}

}  // namespace muster
