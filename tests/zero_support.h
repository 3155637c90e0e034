// Training that tests can follow: gradients that come from a formula, and the same steps on one rank in
// float64.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "muster/zero.h"
#include "parallel/element_type.h"

namespace muster::zero::test {

using Sizes = std::vector<size_t>;
using Values = std::vector<std::vector<float>>;  // by tensor

inline const Sizes kOdd{1, 5, 7, 1003, 0, 64, 258, 0};

inline Options options_of(int stage, DataType type = DataType::bfloat16, size_t bucket = 300) {
  Options o;
  o.stage = stage;
  o.type = type;
  o.bucket = bucket;
  o.adam.learning_rate = 0.01f;
  return o;
}

inline Values initial_values(const Sizes& sizes) {
  Values all;
  for (size_t t = 0; t < sizes.size(); ++t) {
    all.emplace_back(sizes[t]);
    for (size_t i = 0; i < sizes[t]; ++i) all[t][i] = static_cast<float>((i * 37 + t * 101) % 257) / 128 - 1;
  }
  return all;
}
inline std::vector<Tensor> tensors_of(const Values& values) {
  std::vector<Tensor> all;
  for (const std::vector<float>& v : values) all.push_back({v.data(), v.size()});
  return all;
}

// A rank's gradient of an element whose parameter is w: towards a target of the rank's own, so that steps
// depend on all before.
inline float gradient_of(float w, size_t tensor, size_t i, int rank, int micro_batch) {
  const auto target = static_cast<float>((i * 13 + tensor * 7 + static_cast<size_t>(rank) * 29 +
                                          static_cast<size_t>(micro_batch) * 3) %
                                         61) /
                      61;
  return (w - target) / 4;
}

inline std::vector<std::byte> rounded(const std::vector<float>& values, DataType type) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  with_element(type, [&]<class E>() {
    for (size_t i = 0; i < values.size(); ++i) {
      const E e = from_float<E>(values[i]);
      std::memcpy(&bytes[i * sizeof(E)], &e, sizeof(E));
    }
  });
  return bytes;
}
inline std::vector<float> exact(const void* elements, size_t n, DataType type) {
  std::vector<float> values(n);
  with_element(type, [&]<class E>() {
    for (size_t i = 0; i < n; ++i) values[i] = to_float(static_cast<const E*>(elements)[i]);
  });
  return values;
}

// Forward over all tensors, then backward with gradients; `order`: of the tensors in the backward pass.
inline void run_micro_batch(Optimizer& zero, const Sizes& sizes, DataType type, int rank, int micro_batch,
                            float factor, const Sizes& order) {
  for (size_t t = 0; t < sizes.size(); ++t) {
    zero.use(t, Pass::forward);
    zero.done(t);
  }
  for (const size_t t : order) {
    std::vector<float> w = exact(zero.use(t, Pass::backward), sizes[t], type);
    zero.done(t);
    for (size_t i = 0; i < w.size(); ++i) w[i] = gradient_of(w[i], t, i, rank, micro_batch) * factor;
    zero.gradient(t, rounded(w, type).data());
  }
  zero.end_micro_batch();
}
inline Sizes backward(const Sizes& sizes) {
  Sizes order;
  for (size_t t = sizes.size(); t > 0; --t) order.push_back(t - 1);
  return order;
}

inline Values parameters_of(Optimizer& zero, const Sizes& sizes, DataType type) {
  Values all;
  for (size_t t = 0; t < sizes.size(); ++t) {
    all.push_back(exact(zero.use(t, Pass::forward), sizes[t], type));
    zero.done(t);
  }
  return all;
}

// The same training by one rank that has all data, in float64; parameters are rounded to `type` where
// gradients are taken.
class Reference {
 public:
  Reference(const Sizes& sizes, const Options& options, int ranks) : options_(options), ranks_(ranks) {
    for (const std::vector<float>& v : initial_values(sizes)) {
      w_.emplace_back(v.begin(), v.end());
      m_.emplace_back(v.size());
      v_.emplace_back(v.size());
    }
  }
  void step() {
    ++steps_;
    std::vector<std::vector<double>> gradients;
    double squares = 0;
    for (size_t t = 0; t < w_.size(); ++t) {
      gradients.emplace_back(w_[t].size());
      for (size_t i = 0; i < w_[t].size(); ++i) {
        const float w = parameter(t, i);
        for (int r = 0; r < ranks_; ++r)
          for (int k = 0; k < options_.micro_batches; ++k)
            gradients[t][i] += static_cast<double>(gradient_of(w, t, i, r, k));
        gradients[t][i] /= ranks_ * options_.micro_batches;
        squares += gradients[t][i] * gradients[t][i];
      }
    }
    const double norm = std::sqrt(squares),
                 clip = options_.clip_norm > 0 ? std::min(1.0, options_.clip_norm / (norm + 1e-6)) : 1;
    const auto [rate, beta1, beta2, epsilon, decay] = options_.adam;
    for (size_t t = 0; t < w_.size(); ++t)
      for (size_t i = 0; i < w_[t].size(); ++i) {
        const double g = gradients[t][i] * clip;
        m_[t][i] = static_cast<double>(beta1) * m_[t][i] + (1 - static_cast<double>(beta1)) * g;
        v_[t][i] = static_cast<double>(beta2) * v_[t][i] + (1 - static_cast<double>(beta2)) * g * g;
        const double m = m_[t][i] / (1 - std::pow(beta1, steps_)),
                     v = v_[t][i] / (1 - std::pow(beta2, steps_));
        w_[t][i] -= static_cast<double>(rate) * (static_cast<double>(decay) * w_[t][i] +
                                                 m / (std::sqrt(v) + static_cast<double>(epsilon)));
      }
  }
  double at(size_t t, size_t i) const { return w_[t][i]; }

 private:
  float parameter(size_t t, size_t i) const {
    return with_element(options_.type,
                        [&]<class E>() { return to_float(from_float<E>(static_cast<float>(w_[t][i]))); });
  }
  Options options_;
  int ranks_;
  int steps_ = 0;
  std::vector<std::vector<double>> w_, m_, v_;
};

}  // namespace muster::zero::test
