// Training on a GPU that tests can follow: the micro-batches of zero_support.h, in the order of a stream.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
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

inline void expect_same_parameters(Optimizer& gpu, const GpuTrainee& at, Optimizer& host, DataType type) {
  for (size_t t = 0; t < kOdd.size(); ++t) {
    const std::vector<std::byte> got = at.parameter(gpu, t, kOdd[t], type, Pass::forward);
    const auto* want = static_cast<const std::byte*>(host.use(t, Pass::forward));
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want)) << "tensor " << t;
    host.done(t);
  }
}

inline void expect_same_state(Optimizer& gpu, const GpuTrainee& at, Optimizer& host) {
  const std::vector<StatePiece> got = gpu.state(), want = host.state();
  ASSERT_EQ(got.size(), want.size());
  for (size_t p = 0; p < got.size(); ++p) {
    ASSERT_EQ(got[p].tensor, want[p].tensor);
    ASSERT_EQ(got[p].begin, want[p].begin);
    ASSERT_EQ(got[p].elements, want[p].elements);
    for (const auto member :
         {&StatePiece::parameters, &StatePiece::first_moment, &StatePiece::second_moment}) {
      const std::vector<std::byte> bytes = at.read(got[p].*member, got[p].elements * sizeof(float));
      EXPECT_EQ(std::memcmp(bytes.data(), want[p].*member, bytes.size()), 0) << "piece " << p;
    }
  }
}

// Steps of both, compared after each.
inline void train_both(Communicator& c, int rank, const Options& o, int steps,
                       Communicator* replicas = nullptr) {
  const int world_rank = replicas ? rank + c.size() * replicas->rank() : rank;
  GpuTrainee at(world_rank);
  const Values start = initial_values(kOdd);
  Optimizer host(c, tensors_of(start), o, replicas);
  Optimizer gpu(c, tensors_of(start), o, at.stream(), replicas);
  EXPECT_EQ(gpu.allocated(), host.allocated());
  for (int s = 0; s < steps; ++s) {
    for (int k = 0; k < o.micro_batches; ++k) {
      run_micro_batch(host, kOdd, o.type, world_rank, k, host.loss_scale(), backward(kOdd));
      at.micro_batch(gpu, kOdd, o.type, world_rank, k, gpu.loss_scale());
    }
    const StepResult want = host.step(), got = gpu.step();
    EXPECT_EQ(got.norm, want.norm);
    EXPECT_EQ(got.skipped, want.skipped);
    expect_same_parameters(gpu, at, host, o.type);
  }
  expect_same_state(gpu, at, host);
  EXPECT_EQ(gpu.progress(), host.progress());
}

}  // namespace muster::zero::test
