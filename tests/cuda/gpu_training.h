// Training on a GPU that tests can follow: the micro-batches of zero_support.h, in the order of a stream.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <vector>

#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "muster/zero.h"
#include "zero_support.h"

namespace muster::zero::test {

inline constexpr int kPoison = 0xEE;

// A rank's GPU, stream and gradient buffers.
class GpuTrainee {
 public:
  explicit GpuTrainee(int rank) : device_(choose(rank)), stream_(device_) {}

  GpuStream stream() const { return {stream_.handle()}; }
  int device() const { return device_; }

  std::vector<std::byte> read(const void* from, size_t bytes) const {
    std::vector<std::byte> to(bytes);
    if (bytes == 0) return to;
    EXPECT_EQ(cudaMemcpyAsync(to.data(), from, bytes, cudaMemcpyDeviceToHost, stream_.handle()), cudaSuccess);
    stream_.synchronize();
    return to;
  }
  std::vector<std::byte> parameter(Optimizer& zero, size_t tensor, size_t elements, DataType type,
                                   Pass pass) const {
    std::vector<std::byte> got = read(zero.use(tensor, pass), elements * size_of(type));
    zero.done(tensor);
    return got;
  }
  // Gives the gradient by a buffer that the stream overwrites at once.
  void give(Optimizer& zero, size_t tensor, const std::vector<std::byte>& values) {
    if (buffers_.size() <= tensor) buffers_.resize(tensor + 1);
    if (buffers_[tensor].size() < values.size())
      buffers_[tensor] = cuda::DeviceMemory(device_, values.size());
    std::byte* const buffer = buffers_[tensor].data();
    if (!values.empty()) {
      EXPECT_EQ(
          cudaMemcpyAsync(buffer, values.data(), values.size(), cudaMemcpyHostToDevice, stream_.handle()),
          cudaSuccess);
    }
    zero.gradient(tensor, buffer);
    if (!values.empty()) {
      EXPECT_EQ(cudaMemsetAsync(buffer, kPoison, values.size(), stream_.handle()), cudaSuccess);
    }
  }
  void micro_batch(Optimizer& zero, const Sizes& sizes, DataType type, int rank, int micro_batch,
                   float factor) {
    for (size_t t = 0; t < sizes.size(); ++t) {
      zero.use(t, Pass::forward);
      zero.done(t);
    }
    for (const size_t t : backward(sizes)) {
      std::vector<float> w = exact(parameter(zero, t, sizes[t], type, Pass::backward).data(), sizes[t], type);
      for (size_t i = 0; i < w.size(); ++i) w[i] = gradient_of(w[i], t, i, rank, micro_batch) * factor;
      give(zero, t, rounded(w, type));
    }
    zero.end_micro_batch();
  }

 private:
  static int choose(int rank) {
    const int device = rank % cuda::devices().count;
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    return device;
  }
  const int device_;
  cuda::Stream stream_;
  std::vector<cuda::DeviceMemory> buffers_;  // of gradients, by tensor
};

}  // namespace muster::zero::test
