// Integers in a device's memory, zero at first.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

namespace cuda_sim_test {

struct DeviceInts {
  explicit DeviceInts(int n) : count(n) {
    EXPECT_EQ(cudaMalloc(&data, n * sizeof(int)), cudaSuccess);
    EXPECT_EQ(cudaMemset(data, 0, n * sizeof(int)), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  ~DeviceInts() { EXPECT_EQ(cudaFree(data), cudaSuccess); }
  DeviceInts(const DeviceInts&) = delete;
  DeviceInts& operator=(const DeviceInts&) = delete;

  std::vector<int> values() const {
    std::vector<int> v(count);
    EXPECT_EQ(cudaMemcpy(v.data(), data, count * sizeof(int), cudaMemcpyDeviceToHost), cudaSuccess);
    return v;
  }
  int value() const { return values()[0]; }

  int* data = nullptr;
  int count;
};

}  // namespace cuda_sim_test
