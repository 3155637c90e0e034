// Communication of layers whose matrices are split.
#include "muster/tensor_parallel.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/math.h"

namespace muster {
namespace {

void copy_rows(const void* from, void* to, size_t bytes) {
  if (from != to && bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

TensorParallel::TensorParallel(Communicator& group, DataType type, TensorForm form) : group_(&group), type_(type), form_(form) {
  if (size_of(type) == 0) fail(Result::invalid_argument, "Tensor parallelism on the type {}, which is none.", static_cast<int>(type));
}

Shard TensorParallel::own_tokens(size_t tokens) const {
  return form_ == TensorForm::replicated ? Shard{0, tokens} : shard_of(tokens, group_->size(), group_->rank());
}

void TensorParallel::gather(const void* own, void* whole, size_t tokens, size_t width, TensorCalls& calls) {
  group_->all_gather_v(own, own_tokens(tokens).count * width, whole, shard_counts(tokens, group_->size(), width), {}, type_);
  ++calls.all_gathers;
}

void TensorParallel::reduce(const void* whole, void* own, size_t tokens, size_t width, TensorCalls& calls) {
  if (form_ == TensorForm::replicated) {
    group_->all_reduce(whole, own, tokens * width, type_, RedOp::sum);
    ++calls.all_reduces;
  } else {
    group_->reduce_scatter_v(whole, own, shard_counts(tokens, group_->size(), width), type_, RedOp::sum);
    ++calls.reduce_scatters;
  }
}

void TensorParallel::enter(const void* own, void* whole, size_t tokens, size_t width) {
  if (form_ == TensorForm::replicated)
    copy_rows(own, whole, tokens * width * size_of(type_));
  else
    gather(own, whole, tokens, width, forward_);
}

void TensorParallel::enter_backward(const void* whole_gradient, void* own_gradient, size_t tokens, size_t width) {
  reduce(whole_gradient, own_gradient, tokens, width, backward_);
}

void TensorParallel::leave(const void* whole_part, void* own, size_t tokens, size_t width) { reduce(whole_part, own, tokens, width, forward_); }

void TensorParallel::leave_backward(const void* own_gradient, void* whole_gradient, size_t tokens, size_t width) {
  if (form_ == TensorForm::replicated)
    copy_rows(own_gradient, whole_gradient, tokens * width * size_of(type_));
  else
    gather(own_gradient, whole_gradient, tokens, width, backward_);
}

}  // namespace muster
