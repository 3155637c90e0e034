// What an optimizer is given: whether it can be, and whether it is equal on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muster/zero.h"
#include "parallel/training_device.h"

namespace muster::zero {

// Throws invalid_argument, naming what is out of range.
void require_options(const Options& o, const Communicator& communicator, const Communicator* replicas);
std::vector<size_t> sizes_of(std::span<const Tensor> tensors);

// Initial values as they are in host memory.
class HostValues {
 public:
  HostValues(TrainingDevice& device, std::span<const Tensor> tensors);
  std::span<const Tensor> tensors() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::vector<float>> copies_;
};

// Of all that must be equal on all ranks.
struct Digest {
  uint64_t options = 0, sizes = 0, values = 0, progress = 0;
};
Digest digest_of(const Options& o, std::span<const Tensor> tensors);
// Throws invalid_usage, naming the rank. Collective.
void require_equal(Communicator& c, const Digest& mine);
// Throws invalid_usage on all ranks where two of one process have one GPU. Collective over both; `replicas`
// may be empty.
void require_a_gpu_each(Communicator& shards, Communicator& replicas, const TrainingDevice& device);

}  // namespace muster::zero
