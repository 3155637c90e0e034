// Where the elements of a model lie when its state is sharded (ZeRO, Rajbhandari et al. 2020), and what that
// state takes.
//
// All of it is arithmetic on sizes: any rank, and any program, works out every rank's shard from the tensors'
// sizes, the number of ranks, the alignment and the bucket size alone. Units are elements unless it says
// bytes. Objects don't change; any thread may read them.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "muster/types.h"

namespace muster::zero {

// Tensors one behind the other, padded at the end and cut into one shard of equal size per rank. Padding may
// take several ranks' shards, and where there is less than one element each, whole shards are padding.
//
// `alignment` is a shard's: DeepSpeed, which pads the whole to a multiple of its alignment, has world times
// as much.
class MUSTER_API Partition {
 public:
  // invalid_argument: world or alignment below 1, or sizes whose padded sum isn't a size_t. Sizes may be 0.
  Partition(std::span<const size_t> sizes, int world, size_t alignment = 1);

  int world() const { return world_; }
  size_t elements() const { return begins_.back(); }  // without padding
  size_t padded() const { return shard_ * static_cast<size_t>(world_); }
  size_t shard() const { return shard_; }  // per rank, with padding
  size_t tensors() const { return begins_.size() - 1; }
  size_t tensor_begin(size_t tensor) const { return begins_[tensor]; }
  size_t tensor_elements(size_t tensor) const { return begins_[tensor + 1] - begins_[tensor]; }

  // What of rank's shard isn't padding: [begin, end) of the whole.
  size_t begin(int rank) const;
  size_t end(int rank) const;
  size_t padding(int rank) const { return shard_ - (end(rank) - begin(rank)); }

  // The parts of tensors in a rank's shard, in order; tensors without elements have none.
  struct Piece {
    size_t tensor = 0;
    size_t in_tensor = 0;  // where it begins in the tensor
    size_t in_shard = 0;   // and in the shard
    size_t elements = 0;
    friend bool operator==(const Piece&, const Piece&) = default;
  };
  std::vector<Piece> pieces(int rank) const;

 private:
  int world_;
  size_t shard_;
  std::vector<size_t> begins_;  // of each tensor, and where the last one ends
};

// A model's tensors in buckets. Backward passes come to the last tensors first, so bucket 0 has the last
// ones, in order. A bucket takes whole tensors up to `bucket` elements, or a single larger one. Each has a
// partition of its own, so that it can be reduce-scattered as soon as it is full; a rank's shard is its
// shards of all buckets, one behind the other.
class MUSTER_API Layout {
 public:
  Layout(std::span<const size_t> sizes, int world, size_t alignment = 1,
         size_t bucket = std::numeric_limits<size_t>::max());

  struct Bucket {
    size_t first = 0, last = 0;  // its tensors: [first, last)
    Partition partition;
    size_t flat_begin = 0;   // where it begins in a buffer of all buckets, each padded
    size_t shard_begin = 0;  // where it begins in a rank's shard
  };
  const std::vector<Bucket>& buckets() const { return buckets_; }
  size_t bucket_of(size_t tensor) const { return bucket_of_[tensor]; }
  // Where a tensor begins in a buffer of all buckets.
  size_t flat_begin(size_t tensor) const;

  int world() const { return world_; }
  size_t tensors() const { return bucket_of_.size(); }
  size_t elements() const { return elements_; }  // without padding
  size_t padded() const { return padded_; }      // of all buckets
  size_t shard() const { return padded_ / static_cast<size_t>(world_); }
  size_t longest_bucket() const { return longest_; }  // padded

 private:
  int world_;
  size_t elements_ = 0, padded_ = 0, longest_ = 0;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;
};

// What is sharded. 0: nothing (DDP). 1: the optimizer's state. 2: gradients, too. 3: parameters, too.
inline constexpr int kStages = 4;

// Bytes of training state per rank with Adam, for `elements` parameters of `type` on `world` ranks, which
// shard what the stage says (ceil(elements / world) each). float16 and bfloat16: 2 weights + 2 gradients + 4
// master copy + 4 + 4 moments = 16 bytes per parameter (ZeRO, section 3.1); float32 is its own master copy: 4
// + 4 + 0 + 4 + 4, also 16. invalid_argument: another type, a stage that isn't 0 to 3, world below 1.
struct StateBytes {
  size_t weights = 0, gradients = 0, master = 0, moments = 0;
  size_t total() const { return weights + gradients + master + moments; }
  friend bool operator==(const StateBytes&, const StateBytes&) = default;
};
MUSTER_API StateBytes state_bytes(size_t elements, int world, int stage, DataType type = DataType::bfloat16);

// Bytes that a rank sends for one step of one micro-batch, by direct or ring algorithms, for `elements`
// parameters (padded: a multiple of world) of `type`: with Psi = bytes of the parameters and N = world, stage
// 0: an all-reduce, 2 (N-1)/N Psi; stage 1: that and an all-gather, 3 (N-1)/N Psi; stage 2: a reduce-scatter
// and an all-gather, 2 (N-1)/N Psi; stage 3: two all-gathers (forward and backward) and a reduce-scatter, 3
// (N-1)/N Psi (ZeRO, section 7). Errors: as state_bytes.
MUSTER_API size_t step_traffic_bytes(size_t elements, int world, int stage,
                                     DataType type = DataType::bfloat16);

}  // namespace muster::zero
