// A list of tensors in one collective, on host memory: small tensors cost what one collective costs, not what
// one each would.
//
// Each tensor is cut into one shard per rank, padded as zero::Partition says (DeepSpeed's
// reduce_scatter_coalesced and all_gather_coalesced do likewise), and a rank's shards of all tensors lie one
// behind the other. All-reduce is reduce-scatter followed by all-gather, bit for bit where those of one
// buffer are (MUSTER_REPRODUCIBLE=1: always).
//
// The calls copy tensors to or from a flat buffer, which they need memory for, and return when they are done.
// Ranks give equal sizes, alignment and type; only their sum is compared. Errors are muster::Error;
// invalid_argument: a layout for other numbers of ranks or tensors, null for what has elements, GPU memory, a
// communicator that doesn't block; invalid_usage: inside a group, which would run the collective after the
// copies. Thread-safety: as with the communicator; layouts don't change.
#pragma once

#include <span>
#include <vector>

#include "muster/muster.h"
#include "muster/zero_layout.h"

namespace muster {

// Where tensors' shards lie: arithmetic on sizes, which any rank can do for every rank. Units are elements.
class MUSTER_API CoalescedLayout {
 public:
  // Errors: zero::Partition's; invalid_argument also where all shards together have more elements than a
  // size_t counts.
  CoalescedLayout(std::span<const size_t> sizes, int world, size_t alignment = 1);

  int world() const { return world_; }
  size_t tensors() const { return partitions_.size(); }
  size_t shard() const { return shard_; }  // a rank's, of all tensors, with padding
  size_t padded() const { return shard_ * static_cast<size_t>(world_); }
  // Rank r has elements [begin(r), end(r)) of the tensor, from shard_begin on in its shard, and padding(r)
  // elements behind them.
  const zero::Partition& partition(size_t tensor) const { return partitions_[tensor]; }
  size_t shard_begin(size_t tensor) const { return shard_begins_[tensor]; }

 private:
  int world_;
  size_t shard_ = 0;
  std::vector<zero::Partition> partitions_;  // of one tensor each
  std::vector<size_t> shard_begins_;
};

// In place.
MUSTER_API void all_reduce(Communicator& communicator, const CoalescedLayout& layout,
                           std::span<void* const> tensors, DataType type, ReduceOp op);
// shard: layout.shard() elements, of which padding is the reduction of zeros.
MUSTER_API void reduce_scatter(Communicator& communicator, const CoalescedLayout& layout,
                               std::span<const void* const> tensors, void* shard, DataType type, ReduceOp op);
// What shards have as padding goes nowhere.
MUSTER_API void all_gather(Communicator& communicator, const CoalescedLayout& layout, const void* shard,
                           std::span<void* const> tensors, DataType type);

}  // namespace muster
