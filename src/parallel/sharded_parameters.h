// Parameters as they are computed with: whole on every rank (stages 0 to 2), or this rank's shard, from which
// buckets are gathered when they are used (3).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "muster/zero.h"
#include "parallel/passing_buffers.h"

namespace muster {

class ShardedParameters {
 public:
  ShardedParameters(TrainingDevice& device, const zero::Layout& layout, const zero::Options& options,
                    std::span<const zero::Tensor> tensors, Communicator& shards);

  const void* use(size_t tensor, zero::Pass pass);
  void done(size_t tensor);
  // Before parameters change: throws if any are in use; what was gathered ahead is forgotten, what was
  // published is waited for.
  void close();

  // What this rank changes of a bucket: its shard, in stage 0 all of it.
  std::byte* own(size_t bucket);
  // The bucket's shards have changed: begins to gather it where parameters are whole. It is there when it is
  // used.
  void publish(size_t bucket);
  void await_published();  // all buckets

  size_t bytes() const { return weights_.size; }
  size_t passing_bytes() const { return passing_.allocated(); }

 private:
  struct Gathered {
    std::unique_ptr<PassingBuffer> buffer;
    std::vector<char> used;  // by tensor of the bucket
    int users = 0;
    bool ready = false;
    // Once each tensor was used the pass has done with it.
    bool idle() const { return users == 0 && std::find(used.begin(), used.end(), 0) == used.end(); }
  };
  bool sharded() const { return options_.stage == 3; }
  void release(std::map<size_t, Gathered>::iterator which);
  void await_published(size_t bucket);
  size_t packed_shard(size_t bucket) const;  // bytes of a quantised one
  Gathered& begin_gather(size_t bucket);
  void begin_packed(size_t bucket, PassingBuffer& buffer);
  void unpack(size_t bucket, const PassingBuffer& buffer, std::byte* to);
  void await(size_t bucket, Gathered& gathered);
  size_t passing_size() const;
  size_t unpacked_bytes() const;

  TrainingDevice& device_;
  const zero::Layout& layout_;
  const zero::Options& options_;
  Communicator& shards_;
  const size_t width_;
  StateMemory weights_;
  std::vector<int> users_;               // by tensor
  std::map<size_t, Gathered> gathered_;  // by bucket
  PassingBuffers passing_;
  // Published and on the way, by bucket.
  struct Published {
    std::unique_ptr<PassingBuffer> packed;  // quantised ones
    uint64_t given = 0;                     // to lane_ when the bucket is there; others
  };
  std::map<size_t, Published> published_;
  std::unique_ptr<CommunicationLane> lane_;  // gathers in place
};

}  // namespace muster
