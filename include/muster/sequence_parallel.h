// Sequence (context) parallelism: one sequence is spread over the ranks of a group, and attention needs all of it.
//
// Two ways, which can be combined on two axes of a mesh:
//   ring exchange      keys and values travel round the ring while each rank works on the block it has; any number of ranks
//                      (Liu et al. 2023, "Ring Attention with Blockwise Transformers")
//   all-to-all         tokens of all heads become all tokens of some heads, and back; at most as many ranks as heads
//                      (Jacobs et al. 2023, "DeepSpeed Ulysses")
//
// Errors are muster::Error. Every call is made by all ranks of the group with equal shapes; one thread at a time, as with the
// communicator.
#pragma once

#include <functional>
#include <span>

#include "muster/muster.h"
#include "muster/shard.h"

namespace muster {

// Nothing of this inside a group (invalid_usage) nor on a communicator that doesn't block (invalid_argument): buffers would be used before
// anything came.

// Calls `use` once for each rank's block, with this rank's first and then that of the rank before, and so on. While it runs, the
// next block is on its way. counts: elements of each rank's block, 0 allowed, equal on all ranks; own: counts[rank()]
// elements. A block is valid during the call. `use` must not call the group's communicator. Each rank sends all blocks but that of the
// rank behind it, once. Needs memory for two blocks.
using UseBlock = std::function<void(int source, const void* block)>;
MUSTER_API void ring_exchange(Communicator& group, const void* own, std::span<const size_t> counts, DataType type, const UseBlock& use);

// The same for the backward pass: `use` adds what this rank contributes to the block's gradient, of which it gets a zeroed buffer
// of as many elements, and the sums travel round with the blocks, to their owners: `gradient`, counts[rank()] elements. Contributions
// are added in the order of the ring from the owner on. gradient_type: float32 or float64 (else invalid_argument).
using UseBlockBackward = std::function<void(int source, const void* block, void* gradient)>;
MUSTER_API void ring_exchange_backward(Communicator& group, const void* own, std::span<const size_t> counts, DataType type, void* gradient,
                                       DataType gradient_type, const UseBlockBackward& use);

// What is re-sharded: [tokens][heads][width], of which a rank has a share of the tokens or one of the heads, both as shard_of says,
// so neither need be a multiple of the ranks.
struct HeadShape {
  size_t tokens = 0, heads = 0, width = 0;
};
// from: [own tokens][heads][width]; to: [tokens][own heads][width]. May not overlap. Each rank sends (n-1)/n of its part.
MUSTER_API void tokens_to_heads(Communicator& group, const void* from, void* to, const HeadShape& shape, DataType type);
// And back. Each is the other's backward pass.
MUSTER_API void heads_to_tokens(Communicator& group, const void* from, void* to, const HeadShape& shape, DataType type);

}  // namespace muster
