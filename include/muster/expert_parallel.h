// Expert parallelism (mixture of experts): each token goes to the ranks that have the experts chosen for it, and back.
//
//   route     who goes where: counts are exchanged; what is over an expert's capacity is dropped
//   dispatch  tokens to experts (all-to-all with uneven counts), sorted by expert there
//   ...       the caller runs its experts on their rows
//   combine   results back to their tokens, weighted and summed (all-to-all)
//
// Experts are shared out over the group as shard_of says. Any counts will do: experts without tokens, ranks without experts or
// tokens, all tokens to one expert. Sources: Lepikhin et al. 2020, "GShard"; Fedus et al. 2021, "Switch Transformers" (capacity).
//
// Errors are muster::Error. Every call is made by all ranks of the group in the same order; one thread at a time, as with the
// communicator, which must outlive the object. T: float or double.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "muster/muster.h"
#include "muster/shard.h"

namespace muster {

// Most tokens of one rank that an expert takes: factor * tokens * choices / experts, rounded up ("Switch Transformers", equation 3).
// invalid_argument: a factor below 0 or not finite, no experts.
MUSTER_API size_t expert_capacity(double factor, size_t tokens, size_t choices, size_t experts);

// Calls are made outside a group (else invalid_usage) and on a communicator that blocks (else invalid_argument).
class MUSTER_API ExpertParallel {
 public:
  static constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();
  static constexpr int kNoExpert = -1;

  // experts: in all, the same on all ranks.
  ExpertParallel(Communicator& group, size_t experts);
  Shard own_experts() const;  // of this rank

  // chosen: for each token of this rank `choices` experts, one token behind the other; kNoExpert: none. Of what is chosen for an
  // expert on this rank the first `capacity` stay, in the order of tokens; the others are dropped: combine gives nothing for
  // them, as if the expert had answered 0. Tokens, choices and capacity may differ by rank. invalid_argument on all ranks, naming
  // the rank: an expert that there isn't, or chosen.size() that `choices` doesn't divide.
  void route(std::span<const int> chosen, size_t choices, size_t capacity = kUnlimited);

  // Of the last route.
  size_t kept() const { return sent_.size(); }                                    // choices of this rank that were not dropped
  const std::vector<size_t>& dropped() const { return dropped_; }                 // the others, without kNoExpert: places in `chosen`
  size_t rows() const { return rows_; }                                           // that this rank's experts get in all
  const std::vector<size_t>& rows_of_experts() const { return rows_of_experts_; }  // by own expert; their rows lie in this order

  // tokens: [tokens][width]; rows: [rows()][width], by expert, of one expert by rank, of one rank by token.
  template <class T>
  void dispatch(const T* tokens, size_t width, T* rows);
  // rows: the experts' results; weights: one per choice, as `chosen`; null: all 1. returned: [kept()][width], the results of this
  // rank's tokens as they came, which combine_backward needs; out: [tokens][width], the weighted sum over each token's choices.
  template <class T>
  void combine(const T* rows, const T* weights, size_t width, T* returned, T* out);

  // gradient: of out. row_gradients: of combine's rows; weight_gradients: as `chosen`, 0 for what was dropped; null: not wanted.
  template <class T>
  void combine_backward(const T* gradient, const T* weights, const T* returned, size_t width, T* row_gradients, T* weight_gradients);
  // row_gradients: of dispatch's rows; gradient: of tokens, the sum over their choices.
  template <class T>
  void dispatch_backward(const T* row_gradients, size_t width, T* gradient);

 private:
  template <class T>
  MUSTER_HIDDEN void send_rows(const T* sorted, size_t width, T* rows);
  template <class T>
  MUSTER_HIDDEN void return_rows(const T* rows, size_t width, T* sorted);

  Communicator* group_;
  size_t experts_;
  size_t tokens_ = 0, choices_ = 1, rows_ = 0;
  std::vector<size_t> sent_;             // places in `chosen`, by expert, of one expert by token
  std::vector<size_t> dropped_;
  std::vector<size_t> send_counts_, recv_counts_;  // rows, by rank
  std::vector<size_t> place_of_arrival_;           // row that each row becomes as it comes: by rank, of one rank by expert
  std::vector<size_t> rows_of_experts_;
};

}  // namespace muster
