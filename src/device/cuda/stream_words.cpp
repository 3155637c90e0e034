#include "device/cuda/stream_words.h"

#include <cuda.h>

#include <vector>

#include "base/error.h"
#include "device/cuda/check.h"
#include "device/cuda/driver.h"

namespace muster::cuda {
namespace {

constexpr size_t kMostOfBatch = 255;  // cuStreamBatchMemOp takes less than 256 (cuda.h)

CUstreamBatchMemOpParams operation_of(const WordStep& s) {
  CUstreamBatchMemOpParams p{};
  if (s.kind == WordStep::write) {
    p.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    p.writeValue.address = reinterpret_cast<CUdeviceptr>(s.at);
    p.writeValue.value64 = s.value;
    p.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // with a fence before it
  } else {
    p.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    p.waitValue.address = reinterpret_cast<CUdeviceptr>(s.at);
    p.waitValue.value64 = s.value;
    p.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  }
  return p;
}

}  // namespace

std::string stream_words_refusal(int device) {
  if (!driver().why_none.empty()) return driver().why_none;
  int can = 0;
  const auto attribute = static_cast<cudaDeviceAttr>(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  if (cudaDeviceGetAttribute(&can, attribute, device) != cudaSuccess) cudaGetLastError();
  if (can) return {};
  return fmt::format("streams of {} can't wait for words of 64 bits (CAN_USE_64_BIT_STREAM_MEM_OPS is 0)",
                     describe_device(device));
}

void enqueue_words(std::span<const WordStep> steps, int device, StreamHandle stream) {
  const DeviceGuard guard(device);
  std::vector<CUstreamBatchMemOpParams> batch;
  for (size_t i = 0; i < steps.size(); ++i) {
    batch.push_back(operation_of(steps[i]));
    if (batch.size() < kMostOfBatch && i + 1 < steps.size()) continue;
    check(driver().cuStreamBatchMemOp(stream, static_cast<unsigned>(batch.size()), batch.data(), 0),
          "giving {} writes and waits to a stream of {}", batch.size(), describe_device(device));
    batch.clear();
  }
}

}  // namespace muster::cuda
