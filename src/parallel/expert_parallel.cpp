// Tokens to experts and back.
#include "muster/expert_parallel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "parallel/completing_calls.h"

namespace muster {
namespace {

template <class T>
constexpr DataType kExpertType = sizeof(T) == 4 ? DataType::float32 : DataType::float64;

// What a rank tells each other one before its counts.
enum RouteState : uint64_t { kRouteGood = 0, kUnknownExpert, kUnevenChoices };

std::vector<size_t> times(const std::vector<size_t>& counts, size_t width) {
  std::vector<size_t> elements;
  for (const size_t c : counts) elements.push_back(c * width);
  return elements;
}

}  // namespace

size_t expert_capacity(double factor, size_t tokens, size_t choices, size_t experts) {
  if (!(factor >= 0) || !std::isfinite(factor) || experts == 0)
    fail(Result::invalid_argument, "A capacity factor of {} for {} experts: the factor must be a number from 0 on, and there must be experts.", factor, experts);
  return static_cast<size_t>(std::ceil(factor * static_cast<double>(tokens) * static_cast<double>(choices) / static_cast<double>(experts)));
}

ExpertParallel::ExpertParallel(Communicator& group, size_t experts) : group_(&group), experts_(experts) {
  if (experts == 0) fail(Result::invalid_argument, "Expert parallelism needs at least one expert.");
}

Shard ExpertParallel::own_experts() const { return shard_of(experts_, group_->size(), group_->rank()); }

void ExpertParallel::route(std::span<const int> chosen, size_t choices, size_t capacity) {
  require_completing_calls("ExpertParallel::route", *group_);
  uint64_t state = choices == 0 || chosen.size() % choices != 0 ? kUnevenChoices : kRouteGood;
  for (const int expert : chosen)
    if (expert != kNoExpert && (expert < 0 || static_cast<size_t>(expert) >= experts_)) state = kUnknownExpert;

  std::vector<std::vector<size_t>> by_expert(experts_);
  dropped_.clear();
  for (size_t i = 0; i < chosen.size() && state == kRouteGood; ++i) {
    if (chosen[i] == kNoExpert) continue;
    auto& list = by_expert[static_cast<size_t>(chosen[i])];
    list.size() < capacity ? list.push_back(i) : dropped_.push_back(i);
  }

  // To each rank the state, then the counts of its experts.
  const int n = group_->size();
  const size_t own = own_experts().count;
  std::vector<uint64_t> out, in(static_cast<size_t>(n) * (1 + own));
  std::vector<size_t> out_counts;
  sent_.clear();
  send_counts_.clear();
  for (int r = 0; r < n; ++r) {
    const Shard theirs = shard_of(experts_, n, r);
    const size_t before = sent_.size();
    out.push_back(state);
    for (size_t e = theirs.begin; e < theirs.end(); ++e) {
      out.push_back(by_expert[e].size());
      sent_.insert(sent_.end(), by_expert[e].begin(), by_expert[e].end());
    }
    out_counts.push_back(1 + theirs.count);
    send_counts_.push_back(sent_.size() - before);
  }
  const std::vector<size_t> in_counts(static_cast<size_t>(n), 1 + own);
  group_->all_to_all_v(out.data(), out_counts, {}, in.data(), in_counts, {}, DataType::uint64);
  for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
    const uint64_t theirs = in[r * (1 + own)];
    if (theirs == kUnknownExpert)
      fail(Result::invalid_argument, "Rank {} chose an expert that there isn't: experts are 0 to {}, or {} for none.", r, experts_ - 1, kNoExpert);
    if (theirs != kRouteGood)
      fail(Result::invalid_argument, "Rank {} gave a list of chosen experts that isn't a whole number of tokens: it needs the same number of choices, 1 or more, for each.", r);
  }
  tokens_ = chosen.size() / choices;
  choices_ = choices;

  // Rows come by rank and then by expert, and lie by expert and then by rank.
  rows_of_experts_.assign(own, 0);
  recv_counts_.assign(static_cast<size_t>(n), 0);
  const auto count = [&](size_t rank, size_t expert) { return static_cast<size_t>(in[rank * (1 + own) + 1 + expert]); };
  for (size_t r = 0; r < static_cast<size_t>(n); ++r)
    for (size_t e = 0; e < own; ++e) {
      rows_of_experts_[e] += count(r, e);
      recv_counts_[r] += count(r, e);
    }
  std::vector<size_t> next(own, 0);  // row of each expert's next arrival
  std::exclusive_scan(rows_of_experts_.begin(), rows_of_experts_.end(), next.begin(), size_t{0});
  rows_ = std::accumulate(recv_counts_.begin(), recv_counts_.end(), size_t{0});
  place_of_arrival_.clear();
  for (size_t r = 0; r < static_cast<size_t>(n); ++r)
    for (size_t e = 0; e < own; ++e)
      for (size_t i = 0; i < count(r, e); ++i) place_of_arrival_.push_back(next[e]++);
}

template <class T>
void ExpertParallel::send_rows(const T* sorted, size_t width, T* rows) {
  require_completing_calls("ExpertParallel", *group_);
  std::vector<T> arrived(rows_ * width);
  group_->all_to_all_v(sorted, times(send_counts_, width), {}, arrived.data(), times(recv_counts_, width), {}, kExpertType<T>);
  for (size_t i = 0; i < rows_; ++i) std::copy_n(arrived.data() + i * width, width, rows + place_of_arrival_[i] * width);
}

template <class T>
void ExpertParallel::return_rows(const T* rows, size_t width, T* sorted) {
  require_completing_calls("ExpertParallel", *group_);
  std::vector<T> leaving(rows_ * width);
  for (size_t i = 0; i < rows_; ++i) std::copy_n(rows + place_of_arrival_[i] * width, width, leaving.data() + i * width);
  group_->all_to_all_v(leaving.data(), times(recv_counts_, width), {}, sorted, times(send_counts_, width), {}, kExpertType<T>);
}

template <class T>
void ExpertParallel::dispatch(const T* tokens, size_t width, T* rows) {
  std::vector<T> sorted(sent_.size() * width);
  for (size_t i = 0; i < sent_.size(); ++i) std::copy_n(tokens + sent_[i] / choices_ * width, width, sorted.data() + i * width);
  send_rows(sorted.data(), width, rows);
}

template <class T>
void ExpertParallel::combine(const T* rows, const T* weights, size_t width, T* returned, T* out) {
  return_rows(rows, width, returned);
  // In the order of choices, so that a sum doesn't depend on which experts they are.
  std::vector<size_t> order(sent_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sent_[a] < sent_[b]; });
  std::fill_n(out, tokens_ * width, T{0});
  for (const size_t i : order) {
    const T weight = weights != nullptr ? weights[sent_[i]] : T{1};
    T* const token = out + sent_[i] / choices_ * width;
    for (size_t j = 0; j < width; ++j) token[j] += weight * returned[i * width + j];
  }
}

template <class T>
void ExpertParallel::combine_backward(const T* gradient, const T* weights, const T* returned, size_t width, T* row_gradients, T* weight_gradients) {
  std::vector<T> sorted(sent_.size() * width);
  if (weight_gradients != nullptr) std::fill_n(weight_gradients, tokens_ * choices_, T{0});
  for (size_t i = 0; i < sent_.size(); ++i) {
    const T weight = weights != nullptr ? weights[sent_[i]] : T{1};
    const T* const token = gradient + sent_[i] / choices_ * width;
    for (size_t j = 0; j < width; ++j) sorted[i * width + j] = weight * token[j];
    if (weight_gradients != nullptr) weight_gradients[sent_[i]] = std::inner_product(token, token + width, returned + i * width, T{0});
  }
  send_rows(sorted.data(), width, row_gradients);
}

template <class T>
void ExpertParallel::dispatch_backward(const T* row_gradients, size_t width, T* gradient) {
  std::vector<T> returned(sent_.size() * width);
  combine<T>(row_gradients, nullptr, width, returned.data(), gradient);
}

#define MUSTER_EXPERTS_OF(T)                                                                                    \
  template MUSTER_API void ExpertParallel::dispatch(const T*, size_t, T*);                                      \
  template MUSTER_API void ExpertParallel::combine(const T*, const T*, size_t, T*, T*);                         \
  template MUSTER_API void ExpertParallel::combine_backward(const T*, const T*, const T*, size_t, T*, T*);      \
  template MUSTER_API void ExpertParallel::dispatch_backward(const T*, size_t, T*);
MUSTER_EXPERTS_OF(float)
MUSTER_EXPERTS_OF(double)
#undef MUSTER_EXPERTS_OF

}  // namespace muster
