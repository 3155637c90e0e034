#include "exec/cuda/residency.h"

#include <algorithm>
#include <climits>
#include <map>
#include <mutex>
#include <vector>

#include "device/cuda/check.h"
#include "device/cuda/runtime.h"
#include "exec/cuda/kernel_plan.h"
#include "exec/cuda/kernels.h"

namespace muster::cuda {
namespace {

// Those that wait for other ranks.
std::vector<const void*> waiting_kernels() {
  std::vector<const void*> all = {message_kernel()};
  for (int type = 0; type < kDataTypes; ++type) all.push_back(arithmetic_kernel(static_cast<DataType>(type)));
  for (const size_t element : {1, 2, 4, 8}) all.push_back(bits_kernel(element));
  return all;
}

int attribute_of(int device, cudaDeviceAttr attribute) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, attribute, device), "asking what {} is", describe_device(device));
  return value;
}

void load(const void* kernel, int device) {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel), "loading a kernel on {}", describe_device(device));
}

int blocks_held(int device) {
  const LeavesCapturesAlone relaxed;
  const DeviceGuard guard(device);
  load(proof_kernel(), device);
  int least = INT_MAX;
  for (const void* kernel : waiting_kernels()) {
    load(kernel, device);
    int blocks = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kMostKernelThreads, 0),
          "asking how many blocks of a kernel {} holds", describe_device(device));
    least = std::min(least, blocks);
  }
  return least * attribute_of(device, cudaDevAttrMultiProcessorCount);
}

}  // namespace

int load_kernels(int device) {
  static std::mutex mutex;
  static auto* const held = new std::map<int, int>;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = held->try_emplace(device);
  if (is_new) {
    try {
      it->second = blocks_held(device);
    } catch (...) {
      held->erase(it);
      throw;
    }
  }
  return it->second;
}

int compute_capability(int device) {
  return 10 * attribute_of(device, cudaDevAttrComputeCapabilityMajor) +
         attribute_of(device, cudaDevAttrComputeCapabilityMinor);
}

}  // namespace muster::cuda
