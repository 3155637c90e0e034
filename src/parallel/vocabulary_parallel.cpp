// A vocabulary shared out over ranks: embedding and cross-entropy.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "muster/tensor_parallel.h"
#include "parallel/completing_calls.h"

namespace muster {
namespace {

void require_token(int64_t token, size_t at, size_t vocabulary, const char* what) {
  if (token < 0 || static_cast<size_t>(token) >= vocabulary)
    fail(Result::invalid_argument, "{} {} of the call is {}, which isn't in the vocabulary of {} rows (0 to {}).", what, at, token, vocabulary,
         static_cast<int64_t>(vocabulary) - 1);
}

}  // namespace

VocabularyParallel::VocabularyParallel(Communicator& group, size_t vocabulary) : group_(&group), vocabulary_(vocabulary) {}

Shard VocabularyParallel::rows() const { return shard_of(vocabulary_, group_->size(), group_->rank()); }

template <class T>
void VocabularyParallel::embed(const T* table, std::span<const int64_t> tokens, size_t width, T* part) const {
  const Shard mine = rows();
  for (size_t i = 0; i < tokens.size(); ++i) {
    require_token(tokens[i], i, vocabulary_, "Token");
    const auto token = static_cast<size_t>(tokens[i]);
    if (mine.has(token))
      std::copy_n(table + (token - mine.begin) * width, width, part + i * width);
    else
      std::fill_n(part + i * width, width, T{0});
  }
}

template <class T>
void VocabularyParallel::embed_backward(std::span<const int64_t> tokens, size_t width, const T* gradient, T* table_gradient) const {
  const Shard mine = rows();
  for (size_t i = 0; i < tokens.size(); ++i) {
    require_token(tokens[i], i, vocabulary_, "Token");
    const auto token = static_cast<size_t>(tokens[i]);
    if (!mine.has(token)) continue;
    T* const row = table_gradient + (token - mine.begin) * width;
    for (size_t j = 0; j < width; ++j) row[j] += gradient[i * width + j];
  }
}

template <class T>
void VocabularyParallel::cross_entropy(const T* logits, std::span<const int64_t> targets, T* losses, T* probabilities) const {
  require_completing_calls("VocabularyParallel::cross_entropy", *group_);
  const Shard mine = rows();
  const size_t n = targets.size();
  for (size_t i = 0; i < n; ++i)
    if (targets[i] != kIgnored) require_token(targets[i], i, vocabulary_, "Target");
  std::vector<double> most(n, -std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < mine.count; ++j) {
      const double logit = static_cast<double>(logits[i * mine.count + j]);
      if (logit > most[i] || std::isnan(logit)) most[i] = logit;
    }
  group_->all_reduce(most.data(), most.data(), n, DataType::float64, RedOp::max);

  std::vector<double> sums(2 * n, 0);  // of exponentials; then the target's logit, which one rank has
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < mine.count; ++j) sums[i] += std::exp(static_cast<double>(logits[i * mine.count + j]) - most[i]);
    if (targets[i] != kIgnored && mine.has(static_cast<size_t>(targets[i])))
      sums[n + i] = static_cast<double>(logits[i * mine.count + static_cast<size_t>(targets[i]) - mine.begin]) - most[i];
  }
  group_->all_reduce(sums.data(), sums.data(), 2 * n, DataType::float64, RedOp::sum);

  for (size_t i = 0; i < n; ++i) {
    losses[i] = targets[i] == kIgnored ? T{0} : static_cast<T>(std::log(sums[i]) - sums[n + i]);
    for (size_t j = 0; j < mine.count; ++j) {
      const size_t at = i * mine.count + j;
      probabilities[at] = static_cast<T>(std::exp(static_cast<double>(logits[at]) - most[i]) / sums[i]);
    }
  }
}

template <class T>
void VocabularyParallel::cross_entropy_backward(const T* probabilities, std::span<const int64_t> targets, const T* loss_gradients, T* gradient) const {
  const Shard mine = rows();
  for (size_t i = 0; i < targets.size(); ++i)
    for (size_t j = 0; j < mine.count; ++j) {
      const size_t at = i * mine.count + j;
      const T at_target = targets[i] == static_cast<int64_t>(mine.begin + j) ? T{1} : T{0};
      gradient[at] = targets[i] == kIgnored ? T{0} : (probabilities[at] - at_target) * loss_gradients[i];
    }
}

#define MUSTER_VOCABULARY_OF(T)                                                                                            \
  template MUSTER_API void VocabularyParallel::embed(const T*, std::span<const int64_t>, size_t, T*) const;                \
  template MUSTER_API void VocabularyParallel::embed_backward(std::span<const int64_t>, size_t, const T*, T*) const;       \
  template MUSTER_API void VocabularyParallel::cross_entropy(const T*, std::span<const int64_t>, T*, T*) const;            \
  template MUSTER_API void VocabularyParallel::cross_entropy_backward(const T*, std::span<const int64_t>, const T*, T*) const;
MUSTER_VOCABULARY_OF(float)
MUSTER_VOCABULARY_OF(double)
#undef MUSTER_VOCABULARY_OF

}  // namespace muster
