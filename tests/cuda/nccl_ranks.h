// Ranks of one process with a communicator, a stream and two buffers each, on as many GPUs as there are.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/gpus.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "nccl.h"

namespace muster::test {

inline constexpr int kRanks = 4;

class CudaNccl : public testing::Test {
 protected:
  void SetUp() override {
    MUSTER_NEEDS_GPUS(2);
    const int gpus = std::min(cuda::devices().count, kRanks);
    std::vector<int> devices(kRanks);
    for (int r = 0; r < kRanks; ++r) devices[static_cast<size_t>(r)] = r % gpus;
    comms.resize(kRanks);
    ASSERT_EQ(ncclCommInitAll(comms.data(), kRanks, devices.data()), ncclSuccess)
        << ncclGetLastError(nullptr);
    for (int r = 0; r < kRanks; ++r) {
      streams.push_back(std::make_unique<cuda::Stream>(devices[static_cast<size_t>(r)]));
      in.emplace_back(streams.back()->device(), kBytes);
      out.emplace_back(streams.back()->device(), kBytes);
    }
  }
  void TearDown() override {
    for (ncclComm_t c : comms) {
      if (!c) continue;
      EXPECT_EQ(ncclCommDestroy(c), ncclSuccess);
    }
  }

  cudaStream_t stream(int r) const { return streams[static_cast<size_t>(r)]->handle(); }
  ncclComm_t comm(int r) const { return comms[static_cast<size_t>(r)]; }
  float* input(int r) const { return reinterpret_cast<float*>(in[static_cast<size_t>(r)].data()); }
  float* output(int r) const { return reinterpret_cast<float*>(out[static_cast<size_t>(r)].data()); }
  static float value(int r, size_t i) {
    return static_cast<float>((r * 31 + static_cast<int>(i % 1009)) % 97);
  }
  void fill(size_t n) {
    for (int r = 0; r < kRanks; ++r) {
      std::vector<float> values(n);
      for (size_t i = 0; i < n; ++i) values[i] = value(r, i);
      in[static_cast<size_t>(r)].write(0, values.data(), 4 * n);
      std::fill(values.begin(), values.end(), -1.f);
      out[static_cast<size_t>(r)].write(0, values.data(), 4 * n);
    }
  }
  std::vector<float> result(int r, size_t n) const {
    std::vector<float> values(n);
    out[static_cast<size_t>(r)].read(0, values.data(), 4 * n);
    return values;
  }
  // `call(r)` of all ranks: in a group of this thread, or in a thread each.
  void all(bool threads, const std::function<ncclResult_t(int)>& call) {
    if (threads) {
      std::vector<std::thread> running;
      for (int r = 0; r < kRanks; ++r)
        running.emplace_back([&, r] { EXPECT_EQ(call(r), ncclSuccess) << ncclGetLastError(comm(r)); });
      for (auto& t : running) t.join();
    } else {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (int r = 0; r < kRanks; ++r) ASSERT_EQ(call(r), ncclSuccess) << ncclGetLastError(comm(r));
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    }
    for (auto& s : streams) s->synchronize();
  }

  static constexpr size_t kMost = 50'000, kBytes = 4 * kRanks * kMost;
  std::vector<ncclComm_t> comms;
  std::vector<std::unique_ptr<cuda::Stream>> streams;
  std::vector<cuda::DeviceMemory> in, out;
};

}  // namespace muster::test
