// Tensor-parallel ranks by Muster.
#pragma once

#include <vector>

#include "model.h"
#include "muster/tensor_parallel.h"

namespace train {

class SplitColumns final : public Columns {
 public:
  SplitColumns(muster::Communicator& group, muster::TensorForm form, size_t vocabulary)
      : group_(group),
        form_(form),
        layers_(group, muster::DataType::float32, form),
        words_(group, vocabulary) {}

  Range rows(size_t all) const override { return range(layers_.own_tokens(all)); }
  Range vocabulary(size_t) const override { return range(words_.rows()); }
  void gather(const float* own, float* all, size_t rows, size_t width) override {
    layers_.enter(own, all, rows, width);
  }
  void sum(const float* parts, float* own, size_t rows, size_t width) override {
    layers_.leave(parts, own, rows, width);
  }
  void sum_of_own_rows(float* gradient, size_t n) override {
    if (form_ == muster::TensorForm::tokens_split)
      group_.all_reduce(gradient, gradient, n, muster::DataType::float32, muster::RedOp::sum);
  }
  double cross_entropy(float* logits, const uint8_t* targets, size_t rows, size_t) override {
    const std::vector<int64_t> wanted(targets, targets + rows);
    std::vector<float> losses(rows);
    words_.cross_entropy(logits, wanted, losses.data(), logits);
    double loss = 0;
    for (const float l : losses) loss += static_cast<double>(l);
    return loss;
  }

 private:
  static Range range(const muster::Shard& s) { return {s.begin, s.count}; }

  muster::Communicator& group_;
  const muster::TensorForm form_;
  muster::TensorParallel layers_;
  muster::VocabularyParallel words_;
};

}  // namespace train
