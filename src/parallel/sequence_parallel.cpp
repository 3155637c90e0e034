// Blocks round a ring, and tokens against heads.
#include "muster/sequence_parallel.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "parallel/completing_calls.h"

namespace muster {
namespace {

using Block = std::vector<std::byte>;

void require_blocks(const Communicator& group, std::span<const size_t> counts, DataType type) {
  if (counts.size() != static_cast<size_t>(group.size()))
    fail(Result::invalid_argument, "{} sizes of blocks were given for the ring of {}, which has {} ranks.", counts.size(), group.name(), group.size());
  if (size_of(type) == 0) fail(Result::invalid_argument, "The ring's blocks have the type {}, which is none.", static_cast<int>(type));
}

// Who is where in the ring as seen from one rank.
struct RingPlaces {
  int ranks, rank;
  explicit RingPlaces(const Communicator& group) : ranks(group.size()), rank(group.rank()) {}
  int next() const { return (rank + 1) % ranks; }
  int previous() const { return (rank - 1 + ranks) % ranks; }
  int source(int step) const { return ((rank - step) % ranks + ranks) % ranks; }  // whose block is here in that step
};

template <class T>
void add_to(std::byte* sum, const std::byte* more, size_t count) {
  auto* const s = reinterpret_cast<T*>(sum);
  const auto* const m = reinterpret_cast<const T*>(more);
  for (size_t i = 0; i < count; ++i) s[i] = m[i] + s[i];
}

}  // namespace

void ring_exchange(Communicator& group, const void* own, std::span<const size_t> counts, DataType type, const UseBlock& use) {
  require_completing_calls("ring_exchange", group);
  require_blocks(group, counts, type);
  const RingPlaces ring(group);
  const auto elements = [&](int step) { return counts[static_cast<size_t>(ring.source(step))]; };
  Block here, coming;
  HostStream stream;  // ends before the blocks, also when `use` throws
  const void* block = own;
  for (int step = 0; step < ring.ranks; ++step) {
    if (step + 1 < ring.ranks) {
      coming.resize(elements(step + 1) * size_of(type));
      group_start();
      group.send(block, elements(step), type, ring.next(), &stream);
      group.recv(coming.data(), elements(step + 1), type, ring.previous(), &stream);
      group_end();
    }
    use(ring.source(step), block);
    stream.synchronize();
    std::swap(here, coming);
    block = here.data();
  }
}

void ring_exchange_backward(Communicator& group, const void* own, std::span<const size_t> counts, DataType type, void* gradient,
                            DataType gradient_type, const UseBlockBackward& use) {
  require_completing_calls("ring_exchange_backward", group);
  require_blocks(group, counts, type);
  if (gradient_type != DataType::float32 && gradient_type != DataType::float64)
    fail(Result::invalid_argument, "Gradients round a ring are summed in float32 or float64, not in {}.", name_of(gradient_type));
  const RingPlaces ring(group);
  const auto elements = [&](int step) { return counts[static_cast<size_t>(ring.source(step))]; };
  Block here, coming, sum, leaving, arriving;
  HostStream stream;
  const void* block = own;
  // In each step the block goes on, and the sum that the step before made follows it.
  for (int step = 0; step < ring.ranks; ++step) {
    arriving.resize(step > 0 ? elements(step) * size_of(gradient_type) : 0);
    group_start();
    if (step + 1 < ring.ranks) {
      coming.resize(elements(step + 1) * size_of(type));
      group.send(block, elements(step), type, ring.next(), &stream);
      group.recv(coming.data(), elements(step + 1), type, ring.previous(), &stream);
    }
    if (step > 0) {
      group.send(leaving.data(), elements(step - 1), gradient_type, ring.next(), &stream);
      group.recv(arriving.data(), elements(step), gradient_type, ring.previous(), &stream);
    }
    group_end();
    sum.assign(elements(step) * size_of(gradient_type), std::byte{0});
    use(ring.source(step), block, sum.data());
    stream.synchronize();
    if (step > 0)
      (gradient_type == DataType::float32 ? add_to<float> : add_to<double>)(sum.data(), arriving.data(), elements(step));
    std::swap(leaving, sum);
    std::swap(here, coming);
    block = here.data();
  }
  const size_t bytes = counts[static_cast<size_t>(ring.rank)] * size_of(gradient_type);
  if (ring.ranks == 1) {
    if (bytes > 0) std::memcpy(gradient, leaving.data(), bytes);
    return;
  }
  group_start();
  group.send(leaving.data(), elements(ring.ranks - 1), gradient_type, ring.next());
  group.recv(gradient, counts[static_cast<size_t>(ring.rank)], gradient_type, ring.previous());
  group_end();
}

namespace {

// Between [tokens][heads][width] and parts by ranks' heads, one behind the other: [rank][tokens][that rank's heads][width].
void regroup_heads(const std::byte* from, std::byte* to, size_t tokens, const HeadShape& shape, int ranks, size_t element, bool to_parts) {
  size_t part = 0;
  for (int r = 0; r < ranks; ++r) {
    const Shard heads = shard_of(shape.heads, ranks, r);
    const size_t piece = heads.count * shape.width * element;
    for (size_t t = 0; t < tokens && piece > 0; ++t, part += piece) {
      const size_t whole = (t * shape.heads + heads.begin) * shape.width * element;
      to_parts ? std::memcpy(to + part, from + whole, piece) : std::memcpy(to + whole, from + part, piece);
    }
  }
}

// Elements between this rank's tokens and rank r's heads, and the other way round.
struct HeadCounts {
  std::vector<size_t> my_tokens, my_heads;
  HeadCounts(const Communicator& group, const HeadShape& shape) {
    const size_t tokens = shard_of(shape.tokens, group.size(), group.rank()).count, heads = shard_of(shape.heads, group.size(), group.rank()).count;
    my_tokens = shard_counts(shape.heads, group.size(), tokens * shape.width);
    my_heads = shard_counts(shape.tokens, group.size(), heads * shape.width);
  }
};

}  // namespace

void tokens_to_heads(Communicator& group, const void* from, void* to, const HeadShape& shape, DataType type) {
  require_completing_calls("tokens_to_heads", group);
  const HeadCounts counts(group, shape);
  const size_t tokens = shard_of(shape.tokens, group.size(), group.rank()).count;
  Block parts(tokens * shape.heads * shape.width * size_of(type));
  regroup_heads(static_cast<const std::byte*>(from), parts.data(), tokens, shape, group.size(), size_of(type), true);
  group.all_to_all_v(parts.data(), counts.my_tokens, {}, to, counts.my_heads, {}, type);  // tokens come in their order
}

void heads_to_tokens(Communicator& group, const void* from, void* to, const HeadShape& shape, DataType type) {
  require_completing_calls("heads_to_tokens", group);
  const HeadCounts counts(group, shape);
  const size_t tokens = shard_of(shape.tokens, group.size(), group.rank()).count;
  Block parts(tokens * shape.heads * shape.width * size_of(type));
  group.all_to_all_v(from, counts.my_heads, {}, parts.data(), counts.my_tokens, {}, type);
  regroup_heads(parts.data(), static_cast<std::byte*>(to), tokens, shape, group.size(), size_of(type), false);
}

}  // namespace muster
