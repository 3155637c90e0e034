// Gradients of a micro-batch, tensor by tensor as they come, to reduced ones: of all elements (stages 0, 1)
// or of this rank's shard (2, 3). Buckets are reduced in their order, whatever the order in which tensors
// come.
//
// Sharded gradients are reduced in each micro-batch: ranks are added up before micro-batches. Whole ones wait
// for the last micro-batch, which sends them once, unless the order of sums is to be that of the other
// stages.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "muster/zero.h"
#include "parallel/passing_buffers.h"

namespace muster {

class BucketReducer {
 public:
  // `replicas`: empty if there are none.
  BucketReducer(TrainingDevice& device, const zero::Layout& layout, const zero::Options& options,
                Communicator& shards, Communicator& replicas);
  // MUSTER_REPRODUCIBLE: all stages add up ranks before micro-batches.
  static bool one_order_of_sums();

  void add(size_t tensor, const void* values);  // any thread
  void end_micro_batch();
  // The caller's work from now on comes behind what is under way. Then gradients() are those of the step,
  // until clear().
  void finish();
  int micro_batches() const { return ended_; }
  bool has_gradients();  // of a step that has begun
  void clear();

  // Buckets one behind the other: all elements (Layout::flat_begin), or this rank's shards (shard_begin).
  const StateMemory& gradients() const { return gradients_; }
  size_t passing_bytes() const { return passing_.allocated(); }

 private:
  struct Bucket {
    std::unique_ptr<PassingBuffer> buffer;  // where tensors are collected, if each micro-batch is reduced
    size_t copied = 0;                      // tensors of this micro-batch
  };
  struct UnderWay {
    size_t bucket;
    std::unique_ptr<PassingBuffer> buffer;
    bool first;  // micro-batch of the step
  };
  bool sharded() const { return options_.stage >= 2; }
  std::byte* place_for(size_t bucket);
  void reduce_next();
  void reduce_whole(size_t bucket);
  void reduce_passing(size_t bucket);
  void retire_oldest();

  TrainingDevice& device_;
  const zero::Layout& layout_;
  const zero::Options& options_;
  Communicator& shards_;
  Communicator& replicas_;
  const size_t width_;
  const bool each_micro_batch_;  // is reduced
  std::mutex mutex_;
  StateMemory gradients_;
  std::vector<Bucket> buckets_;
  std::vector<char> given_;  // by tensor, in this micro-batch
  size_t next_ = 0;          // the bucket that is reduced next
  int ended_ = 0;            // micro-batches of this step
  PassingBuffers passing_;
  std::deque<UnderWay> under_way_;            // in buffers, oldest first
  std::unique_ptr<CommunicationLane> whole_;  // reduces in place
};

}  // namespace muster
