// Tensor parallelism: what a group of ranks that share each layer's matrices has to communicate.
//
// A layer of a transformer is two pairs of matrices, each with a function of single elements or heads in between: the first
// of a pair is split by columns, so that each rank computes some of the heads or hidden units alone, the second by rows, so that
// each rank has a part of the sum. Communication is needed where a pair is entered (backward) and where it is left (forward):
//
//               x --enter--> [ A, columns ] --> f --> [ B, rows ] --leave--> y
//
//   form            tokens outside pairs   enter       enter_backward    leave            leave_backward
//   replicated      all on all ranks       -           all-reduce        all-reduce       -
//   tokens_split    a share on each rank   all-gather  reduce-scatter    reduce-scatter   all-gather
//
// So a transformer layer has two all-reduces forward and two backward (Shoeybi et al. 2019, "Megatron-LM", section 3), or, for the
// same bytes and with less memory between pairs, as many all-gathers and reduce-scatters (Korthikanti et al. 2022, "Reducing
// Activation Recomputation in Large Transformer Models", section 4.2.2). Each rank sends 2 (t-1)/t of the activation per
// all-reduce, t: ranks of the group.
//
// Errors are muster::Error. Every call is made by all ranks of the group, in the same order, with the same tokens and width;
// one thread at a time, as with the communicator, which must outlive the object.
#pragma once

#include <cstdint>
#include <span>

#include "muster/muster.h"
#include "muster/shard.h"

namespace muster {

enum class TensorForm : uint8_t { replicated, tokens_split };

struct TensorCalls {
  uint64_t all_reduces = 0, all_gathers = 0, reduce_scatters = 0;
  friend bool operator==(const TensorCalls&, const TensorCalls&) = default;
};

class MUSTER_API TensorParallel {
 public:
  TensorParallel(Communicator& group, DataType type, TensorForm form);

  // Activations are rows of `width` elements, one row per token. "Whole" ones have all `tokens` rows, "own" ones, in
  // tokens_split, the rows of own_tokens(tokens), else all. In the replicated form both may be the same memory, in the other one
  // own may be where its rows are in whole.
  void enter(const void* own, void* whole, size_t tokens, size_t width);
  void enter_backward(const void* whole_gradient, void* own_gradient, size_t tokens, size_t width);
  void leave(const void* whole_part, void* own, size_t tokens, size_t width);
  void leave_backward(const void* own_gradient, void* whole_gradient, size_t tokens, size_t width);
  // Rows need not divide evenly. Gradients of weights that are used on own tokens only (a layer norm's) must be summed over the
  // group.
  Shard own_tokens(size_t tokens) const;

  // Collectives so far, of each direction.
  const TensorCalls& forward_calls() const { return forward_; }
  const TensorCalls& backward_calls() const { return backward_; }

 private:
  MUSTER_HIDDEN void gather(const void* own, void* whole, size_t tokens, size_t width, TensorCalls& calls);
  MUSTER_HIDDEN void reduce(const void* whole, void* own, size_t tokens, size_t width, TensorCalls& calls);

  Communicator* group_;
  DataType type_;
  TensorForm form_;
  TensorCalls forward_, backward_;
};

// A vocabulary whose rows (of the embedding, and of the last layer's matrix) are shared out over the group. T: float or double.
class MUSTER_API VocabularyParallel {
 public:
  // As a target: the token doesn't count; its loss and gradients are 0. The value is PyTorch's default (ignore_index).
  static constexpr int64_t kIgnored = -100;

  // vocabulary: rows in all; a rank may have none.
  VocabularyParallel(Communicator& group, size_t vocabulary);
  Shard rows() const;  // of this rank

  // This rank's part of the tokens' embeddings, zeros for tokens of others: TensorParallel::leave makes them whole. table: rows()
  // of `width`. No communication. invalid_argument: a token that isn't in the vocabulary.
  template <class T>
  void embed(const T* table, std::span<const int64_t> tokens, size_t width, T* part) const;
  // Adds to the table's gradient. No communication.
  template <class T>
  void embed_backward(std::span<const int64_t> tokens, size_t width, const T* gradient, T* table_gradient) const;

  // Loss of each token, -log softmax(logits)[target], on all ranks alike. logits: for each token this rank's rows();
  // probabilities: the same, what backward needs; may be logits. The greatest logit is taken off first, so any finite logits will
  // do. Two all-reduces, of one and two float64 per token, whatever the vocabulary. invalid_argument: a target that isn't in
  // the vocabulary and isn't kIgnored, a communicator that doesn't block. invalid_usage: inside a group.
  template <class T>
  void cross_entropy(const T* logits, std::span<const int64_t> targets, T* losses, T* probabilities) const;
  // gradient: for each token this rank's rows(): loss_gradients[token] (softmax - 1 at the target); may be probabilities. No
  // communication.
  template <class T>
  void cross_entropy_backward(const T* probabilities, std::span<const int64_t> targets, const T* loss_gradients, T* gradient) const;

 private:
  Communicator* group_;
  size_t vocabulary_;
};

// A tensor that all ranks of a tensor-parallel group have alike goes to the next pipeline stage in slices, one per rank, and is put
// together there, so that each byte crosses between hosts once and not once per rank (Narayanan et al. 2021, "PTD-P", section 4.1,
// "scatter/gather optimization"). Both groups have the same size, and ranks of one number are at the two ends of a `pipe`.
//
// Only for tensors that are equal on all ranks: what differs would be mixed. check, the same at both ends, finds that out for one
// small all-gather and message: invalid_usage on all ranks of both groups, naming the sender's ranks. Collective over both groups.
MUSTER_API void send_sliced(Communicator& pipe, int to, Communicator& group, const void* tensor, size_t count, DataType type, bool check = false);
MUSTER_API void recv_sliced(Communicator& pipe, int from, Communicator& group, void* tensor, size_t count, DataType type, bool check = false);

}  // namespace muster
