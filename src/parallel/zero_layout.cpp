#include "muster/zero_layout.h"

#include <algorithm>

#include "base/error.h"
#include "base/math.h"

namespace muster::zero {
namespace {

void require_world(int world) {
  if (world < 1) fail(Result::invalid_argument, "{} ranks share the state; 1 or more wanted", world);
}

void require_state(int world, int stage, DataType type) {
  require_world(world);
  if (stage < 0 || stage >= kStages)
    fail(Result::invalid_argument, "ZeRO stage {}; 0 (nothing is sharded) to 3 wanted", stage);
  if (type != DataType::float16 && type != DataType::bfloat16 && type != DataType::float32)
    fail(Result::invalid_argument, "parameters of type {}; float16, bfloat16 or float32 wanted",
         name_of(type));
}

}  // namespace

Partition::Partition(std::span<const size_t> sizes, int world, size_t alignment) : world_(world), begins_{0} {
  require_world(world);
  if (alignment < 1)
    fail(Result::invalid_argument, "shards aligned to {} elements; 1 or more wanted", alignment);
  const auto n = static_cast<size_t>(world);
  for (const size_t size : sizes) {
    size_t end = 0;
    if (__builtin_add_overflow(begins_.back(), size, &end))
      fail(Result::invalid_argument, "the {} tensors have more elements than an address counts",
           sizes.size());
    begins_.push_back(end);
  }
  const size_t blocks = ceil_div(ceil_div(elements(), n), alignment);
  size_t all = 0;
  if (__builtin_mul_overflow(blocks, alignment, &shard_) || __builtin_mul_overflow(shard_, n, &all))
    fail(Result::invalid_argument, "{} elements in {} shards aligned to {} are more than an address counts",
         elements(), world, alignment);
}

size_t Partition::begin(int rank) const {
  if (rank < 0 || rank >= world_)
    fail(Result::invalid_argument, "rank {} of a partition for {}", rank, world_);
  return std::min(elements(), shard_ * static_cast<size_t>(rank));
}
size_t Partition::end(int rank) const { return std::min(elements(), begin(rank) + shard_); }

std::vector<Partition::Piece> Partition::pieces(int rank) const {
  std::vector<Piece> found;
  const size_t from = begin(rank), to = end(rank);
  // The first tensor that ends behind the shard's begin.
  size_t t =
      static_cast<size_t>(std::upper_bound(begins_.begin() + 1, begins_.end(), from) - begins_.begin()) - 1;
  for (; t < tensors() && begins_[t] < to; ++t) {
    const size_t a = std::max(from, begins_[t]), b = std::min(to, begins_[t + 1]);
    if (a < b) found.push_back({t, a - begins_[t], a - from, b - a});
  }
  return found;
}

Layout::Layout(std::span<const size_t> sizes, int world, size_t alignment, size_t bucket)
    : world_(world), bucket_of_(sizes.size()) {
  require_world(world);
  if (bucket < 1) fail(Result::invalid_argument, "buckets of {} elements; 1 or more wanted", bucket);
  for (size_t last = sizes.size(); last > 0;) {
    size_t first = last - 1, filled = sizes[first];
    while (first > 0 && filled <= bucket && sizes[first - 1] <= bucket - filled) filled += sizes[--first];
    Bucket made{first, last, Partition(sizes.subspan(first, last - first), world, alignment), padded_,
                shard()};
    std::fill(bucket_of_.begin() + static_cast<std::ptrdiff_t>(first),
              bucket_of_.begin() + static_cast<std::ptrdiff_t>(last), buckets_.size());
    elements_ += made.partition.elements();
    if (__builtin_add_overflow(padded_, made.partition.padded(), &padded_))
      fail(Result::invalid_argument, "the {} tensors, padded, have more elements than an address counts",
           sizes.size());
    longest_ = std::max(longest_, made.partition.padded());
    buckets_.push_back(std::move(made));
    last = first;
  }
}

size_t Layout::flat_begin(size_t tensor) const {
  const Bucket& b = buckets_[bucket_of_[tensor]];
  return b.flat_begin + b.partition.tensor_begin(tensor - b.first);
}

StateBytes state_bytes(size_t elements, int world, int stage, DataType type) {
  require_state(world, stage, type);
  const size_t shard = ceil_div(elements, static_cast<size_t>(world));
  const auto held = [&](int sharded_from) { return stage >= sharded_from ? shard : elements; };
  const size_t width = size_of(type), master = type == DataType::float32 ? 0 : sizeof(float);
  return {held(3) * width, held(2) * width, held(1) * master, held(1) * 2 * sizeof(float)};
}

size_t step_traffic_bytes(size_t elements, int world, int stage, DataType type) {
  require_state(world, stage, type);
  const auto n = static_cast<size_t>(world);
  constexpr size_t kPasses[kStages] = {2, 3, 2, 3};
  return kPasses[stage] * (n - 1) * (ceil_div(elements, n) * size_of(type));
}

}  // namespace muster::zero
