#include "parallel/sharded_parameters.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/math.h"
#include "parallel/block_quantise.h"

namespace muster {

using zero::Layout;
using zero::Partition;
using zero::Pass;

ShardedParameters::ShardedParameters(TrainingDevice& device, const Layout& layout,
                                     const zero::Options& options, std::span<const zero::Tensor> tensors,
                                     Communicator& shards)
    : device_(device),
      layout_(layout),
      options_(options),
      shards_(shards),
      width_(size_of(options.type)),
      weights_(device.allocate((sharded() ? layout.shard() : layout.padded()) * width_)),
      users_(layout.tensors()),
      passing_(device, passing_size()),
      lane_(device.make_lane()) {
  if (!sharded()) {
    for (size_t t = 0; t < tensors.size(); ++t)
      device.write(weights_.data() + layout.flat_begin(t) * width_, tensors[t].values, tensors[t].elements,
                   options.type);
    return;
  }
  for (const Layout::Bucket& b : layout.buckets())
    for (const Partition::Piece& piece : b.partition.pieces(shards.rank()))
      device.write(weights_.data() + (b.shard_begin + piece.in_shard) * width_,
                   tensors[b.first + piece.tensor].values + piece.in_tensor, piece.elements, options.type);
}

// A buffer holds a gathered bucket (stage 3), and behind it, or instead, its quantised shards.
size_t ShardedParameters::unpacked_bytes() const {
  return sharded() ? align_up(layout_.longest_bucket() * width_, sizeof(float)) : 0;
}
size_t ShardedParameters::passing_size() const {
  size_t packed = 0;
  for (size_t b = 0; b < layout_.buckets().size() && options_.quantised_gather; ++b)
    packed = std::max(packed, packed_shard(b) * static_cast<size_t>(layout_.world()));
  return unpacked_bytes() + packed;
}
size_t ShardedParameters::packed_shard(size_t bucket) const {
  return quantised_bytes(layout_.buckets()[bucket].partition.shard(), zero::kQuantisedBlock);
}

std::byte* ShardedParameters::own(size_t bucket) {
  const Layout::Bucket& b = layout_.buckets()[bucket];
  if (sharded()) return weights_.data() + b.shard_begin * width_;
  const size_t shard = options_.stage == 0 ? 0 : static_cast<size_t>(shards_.rank()) * b.partition.shard();
  return weights_.data() + (b.flat_begin + shard) * width_;
}

void ShardedParameters::begin_packed(size_t bucket, PassingBuffer& buffer) {
  const size_t bytes = packed_shard(bucket);
  std::byte* const all = buffer.data.data() + unpacked_bytes();
  std::byte* const mine = all + static_cast<size_t>(shards_.rank()) * bytes;
  device_.quantise(own(bucket), options_.type, layout_.buckets()[bucket].partition.shard(), mine);
  buffer.lane->all_gather(shards_, mine, all, bytes, DataType::uint8);
}

// This rank's own shard, too: all ranks compute with the same bits.
void ShardedParameters::unpack(size_t bucket, const PassingBuffer& buffer, std::byte* to) {
  const size_t shard = layout_.buckets()[bucket].partition.shard(), bytes = packed_shard(bucket);
  const std::byte* const all = buffer.data.data() + unpacked_bytes();
  for (size_t r = 0; r < static_cast<size_t>(layout_.world()); ++r)
    device_.dequantise(all + r * bytes, options_.type, shard, to + r * shard * width_);
}

ShardedParameters::Gathered& ShardedParameters::begin_gather(size_t bucket) {
  if (const auto found = gathered_.find(bucket); found != gathered_.end()) return found->second;
  Gathered& made = gathered_[bucket];
  made.buffer = passing_.take();
  const Layout::Bucket& b = layout_.buckets()[bucket];
  for (size_t t = b.first; t < b.last; ++t)
    made.used.push_back(b.partition.tensor_elements(t - b.first) == 0);
  const size_t shard = b.partition.shard();
  if (shard == 0) return made;
  if (options_.quantised_gather)
    begin_packed(bucket, *made.buffer);
  else
    made.buffer->lane->all_gather(shards_, own(bucket), made.buffer->data.data(), shard, options_.type);
  return made;
}

void ShardedParameters::await(size_t bucket, Gathered& gathered) {
  if (std::exchange(gathered.ready, true)) return;
  gathered.buffer->lane->await();
  if (options_.quantised_gather) unpack(bucket, *gathered.buffer, gathered.buffer->data.data());
}

const void* ShardedParameters::use(size_t tensor, Pass pass) {
  if (tensor >= layout_.tensors())
    fail(Result::invalid_argument, "tensor {} of {} is used", tensor, layout_.tensors());
  ++users_[tensor];
  const size_t bucket = layout_.bucket_of(tensor);
  if (!sharded()) {
    await_published(bucket);
    return weights_.data() + layout_.flat_begin(tensor) * width_;
  }
  const size_t last = layout_.buckets().size() - 1;
  const Layout::Bucket& b = layout_.buckets()[bucket];
  if (b.partition.tensor_elements(tensor - b.first) == 0) return weights_.data();
  // Those behind, of which not all tensors were used, too.
  for (auto g = gathered_.begin(); g != gathered_.end();)
    if (const auto here = g++; here->second.ready && here->second.users == 0 && here->first != bucket)
      release(here);
  // Forward passes go from the last bucket, which has the first tensors, to bucket 0.
  Gathered& gathered = begin_gather(bucket);
  const size_t ahead = std::min<size_t>(static_cast<size_t>(options_.prefetch),
                                        pass == Pass::forward ? bucket : last - bucket);
  for (size_t k = 1; k <= ahead; ++k) begin_gather(pass == Pass::forward ? bucket - k : bucket + k);
  await(bucket, gathered);
  ++gathered.users;
  gathered.used[tensor - b.first] = 1;
  return gathered.buffer->data.data() + b.partition.tensor_begin(tensor - b.first) * width_;
}

void ShardedParameters::done(size_t tensor) {
  if (tensor >= layout_.tensors() || users_[tensor] == 0)
    fail(Result::invalid_usage, "done({}): that tensor isn't in use. Each use() is followed by one done()",
         tensor);
  --users_[tensor];
  if (!sharded()) return;
  const size_t bucket = layout_.bucket_of(tensor);
  if (layout_.buckets()[bucket].partition.tensor_elements(tensor - layout_.buckets()[bucket].first) == 0)
    return;
  const auto found = gathered_.find(bucket);
  --found->second.users;
  if (found->second.idle()) release(found);
}

void ShardedParameters::release(std::map<size_t, Gathered>::iterator which) {
  passing_.give_back(std::move(which->second.buffer));
  gathered_.erase(which);
}

void ShardedParameters::close() {
  for (size_t t = 0; t < users_.size(); ++t)
    if (users_[t]) fail(Result::invalid_usage, "step() while tensor {} is in use. Call done({}) first", t, t);
  for (auto& [bucket, gathered] : gathered_) {
    gathered.buffer->lane->await();
    passing_.give_back(std::move(gathered.buffer));
  }
  gathered_.clear();
  await_published();
}

void ShardedParameters::publish(size_t bucket) {
  const Layout::Bucket& b = layout_.buckets()[bucket];
  if (options_.stage == 0 || sharded() || b.partition.shard() == 0) return;
  Published& made = published_[bucket];
  if (options_.quantised_gather) {
    made.packed = passing_.take();
    begin_packed(bucket, *made.packed);
  } else {
    lane_->all_gather(shards_, own(bucket), weights_.data() + b.flat_begin * width_, b.partition.shard(),
                      options_.type);
    made.given = lane_->given();
  }
}

void ShardedParameters::await_published(size_t bucket) {
  const auto found = published_.find(bucket);
  if (found == published_.end()) return;
  if (std::unique_ptr<PassingBuffer>& packed = found->second.packed) {
    packed->lane->await();
    unpack(bucket, *packed, weights_.data() + layout_.buckets()[bucket].flat_begin * width_);
    passing_.give_back(std::move(packed));
  } else {
    lane_->await(found->second.given);
  }
  published_.erase(found);
}

void ShardedParameters::await_published() {
  while (!published_.empty()) await_published(published_.begin()->first);
}

}  // namespace muster
