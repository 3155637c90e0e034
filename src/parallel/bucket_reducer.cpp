#include "parallel/bucket_reducer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/options.h"

namespace muster {
namespace {

// While one bucket is reduced the next one is collected, and one more may wait for its turn.
constexpr size_t kBucketsUnderWay = 2;

}  // namespace

bool BucketReducer::one_order_of_sums() { return Options::from_environment().flag("MUSTER_REPRODUCIBLE"); }

BucketReducer::BucketReducer(TrainingDevice& device, const zero::Layout& layout, const zero::Options& options,
                             Communicator& shards, Communicator& replicas)
    : device_(device),
      layout_(layout),
      options_(options),
      shards_(shards),
      replicas_(replicas),
      width_(size_of(options.type)),
      each_micro_batch_(sharded() || (options.micro_batches > 1 && one_order_of_sums())),
      gradients_(device.allocate((sharded() ? layout.shard() : layout.padded()) * width_)),
      buckets_(layout.buckets().size()),
      given_(layout.tensors()),
      passing_(device, layout.longest_bucket() * width_),
      whole_(device.make_lane()) {}

// A bucket's own place: of whole gradients where they stay, else a buffer.
std::byte* BucketReducer::place_for(size_t bucket) {
  if (!each_micro_batch_) return gradients_.data() + layout_.buckets()[bucket].flat_begin * width_;
  std::unique_ptr<PassingBuffer>& buffer = buckets_[bucket].buffer;
  if (!buffer) {
    if (under_way_.size() >= kBucketsUnderWay) retire_oldest();
    buffer = passing_.take();
    device_.clear(buffer->data.data(), buffer->data.size);  // tensors without a gradient, and padding
  }
  return buffer->data.data();
}

void BucketReducer::add(size_t tensor, const void* values) {
  if (tensor >= layout_.tensors())
    fail(Result::invalid_argument, "gradient of tensor {} of {}", tensor, layout_.tensors());
  const size_t b = layout_.bucket_of(tensor);
  const zero::Partition& partition = layout_.buckets()[b].partition;
  const size_t in_bucket = tensor - layout_.buckets()[b].first;
  const size_t elements = partition.tensor_elements(in_bucket);
  if (elements && !values)
    fail(Result::invalid_argument, "the gradient of tensor {} ({} elements) is null", tensor, elements);
  std::byte* place;
  bool adds;
  {
    const std::lock_guard lock(mutex_);
    if (ended_ == options_.micro_batches)
      fail(Result::invalid_usage,
           "gradient of tensor {} after the {} micro-batches of this step have ended. Call step() first",
           tensor, ended_);
    if (std::exchange(given_[tensor], 1))
      fail(Result::invalid_usage,
           "the gradient of tensor {} came twice in a micro-batch. Add its contributions up before it is "
           "given",
           tensor);
    place = place_for(b) + partition.tensor_begin(in_bucket) * width_;
    adds = !each_micro_batch_ && ended_ > 0;
  }
  if (adds)
    device_.add_elements(place, values, elements, options_.type);
  else
    device_.copy(place, values, elements * width_);
  const std::lock_guard lock(mutex_);
  ++buckets_[b].copied;
  while (next_ < buckets_.size() && buckets_[next_].copied == layout_.buckets()[next_].partition.tensors())
    reduce_next();
}

void BucketReducer::end_micro_batch() {
  const std::lock_guard lock(mutex_);
  if (ended_ == options_.micro_batches)
    fail(Result::invalid_usage,
         "more than {} micro-batches (Options::micro_batches) since the last step(). Call step() after as "
         "many",
         ended_);
  while (next_ < buckets_.size()) reduce_next();
  for (Bucket& b : buckets_) b.copied = 0;
  std::fill(given_.begin(), given_.end(), char{0});
  next_ = 0;
  ++ended_;
}

void BucketReducer::reduce_next() {
  const size_t bucket = next_++;
  if (layout_.buckets()[bucket].partition.padded() == 0) return;
  if (each_micro_batch_)
    reduce_passing(bucket);
  else if (ended_ + 1 == options_.micro_batches)
    reduce_whole(bucket);
}

void BucketReducer::reduce_whole(size_t bucket) {
  const zero::Partition& p = layout_.buckets()[bucket].partition;
  std::byte* const all = place_for(bucket);
  whole_->all_reduce(shards_, all, p.padded(), options_.type);
  if (!replicas_) return;
  std::byte* const mine = all + static_cast<size_t>(shards_.rank()) * p.shard() * width_;
  whole_->all_reduce(replicas_, mine, p.shard(), options_.type);
}

void BucketReducer::reduce_passing(size_t bucket) {
  const zero::Partition& p = layout_.buckets()[bucket].partition;
  std::byte* const all = place_for(bucket);
  std::byte* const mine = all + static_cast<size_t>(shards_.rank()) * p.shard() * width_;
  std::unique_ptr<PassingBuffer> buffer = std::move(buckets_[bucket].buffer);
  if (sharded())
    buffer->lane->reduce_scatter(shards_, all, mine, p.shard(), options_.type);
  else
    buffer->lane->all_reduce(shards_, all, p.padded(), options_.type);
  if (replicas_) buffer->lane->all_reduce(replicas_, mine, p.shard(), options_.type);
  under_way_.push_back({bucket, std::move(buffer), ended_ == 0});
}

void BucketReducer::retire_oldest() {
  UnderWay oldest = std::move(under_way_.front());
  under_way_.pop_front();
  oldest.buffer->lane->await();
  const zero::Layout::Bucket& b = layout_.buckets()[oldest.bucket];
  const size_t elements = sharded() ? b.partition.shard() : b.partition.padded();
  const size_t skipped = sharded() ? static_cast<size_t>(shards_.rank()) * elements : 0;
  const std::byte* const reduced = oldest.buffer->data.data() + skipped * width_;
  std::byte* const sum = gradients_.data() + (sharded() ? b.shard_begin : b.flat_begin) * width_;
  if (oldest.first)
    device_.copy(sum, reduced, elements * width_);
  else
    device_.add_elements(sum, reduced, elements, options_.type);
  passing_.give_back(std::move(oldest.buffer));
}

void BucketReducer::finish() {
  const std::lock_guard lock(mutex_);
  while (!under_way_.empty()) retire_oldest();
  whole_->await();
}

bool BucketReducer::has_gradients() {
  const std::lock_guard lock(mutex_);
  return ended_ > 0 || std::find(given_.begin(), given_.end(), 1) != given_.end();
}

void BucketReducer::clear() {
  const std::lock_guard lock(mutex_);
  device_.clear(gradients_.data(), gradients_.size);
  ended_ = 0;
}

}  // namespace muster
