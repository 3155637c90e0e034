// GPU memory as tests look at it from the host.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "device/cuda/runtime.h"

namespace muster::test {

using Bytes = std::vector<uint8_t>;

// Another pattern for each seed.
inline Bytes pattern(size_t n, int seed) {
  Bytes b(n);
  for (size_t i = 0; i < n; ++i) b[i] = static_cast<uint8_t>(static_cast<uint64_t>(seed) * 101 + i * 7 + i / 251);
  return b;
}
// Empty: none.
inline std::string difference(const Bytes& got, const Bytes& wanted) {
  if (got.size() != wanted.size()) return std::to_string(got.size()) + " bytes, wanted are " + std::to_string(wanted.size());
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != wanted[i])
      return "byte " + std::to_string(i) + " is " + std::to_string(got[i]) + ", wanted is " + std::to_string(wanted[i]);
  return "";
}
inline void put(void* at, const Bytes& bytes) {
  ASSERT_EQ(cudaMemcpy(at, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
}
inline Bytes get(const void* at, size_t n) {
  Bytes b(n, 0xee);
  EXPECT_EQ(cudaMemcpy(b.data(), at, n, cudaMemcpyDeviceToHost), cudaSuccess);
  return b;
}
inline size_t free_memory(int device) {
  const cuda::DeviceGuard guard(device);
  size_t free = 0, all = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &all), cudaSuccess);
  return free;
}
// Descriptors of simulated GPU memory: the simulator has one open for each handle of cuMemCreate or import.
inline size_t descriptors_of_gpu_memory() {
  size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the one that reads the folder
    n += std::filesystem::read_symlink(entry, gone).string().find("cuda_sim-memory-") != std::string::npos;
  }
  return n;
}

}  // namespace muster::test
