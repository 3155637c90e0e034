// A communicator of one rank on a GPU: what only moves is the runtime's copy, and no kernel.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "cuda/gpus.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "nccl.h"

namespace muster {
namespace {

constexpr size_t kCount = 70'001, kGuard = 64;

class CudaOneRank : public testing::Test {
 protected:
  void SetUp() override {
    MUSTER_NEEDS_GPUS(1);
    const int device = 0;
    ASSERT_EQ(ncclCommInitAll(&comm_, 1, &device), ncclSuccess) << ncclGetLastError(nullptr);
    in_ = cuda::DeviceMemory(0, 4 * kCount);
    out_ = cuda::DeviceMemory(0, 4 * (kCount + kGuard));
    std::vector<float> values(kCount);
    for (size_t i = 0; i < kCount; ++i) values[i] = value(i);
    in_.write(0, values.data(), 4 * kCount);
  }
  void TearDown() override {
    if (comm_) {
      EXPECT_EQ(ncclCommDestroy(comm_), ncclSuccess);
    }
  }
  static float value(size_t i) { return static_cast<float>(i % 1009) - 500; }
  const void* in() const { return in_.data(); }
  void* out() const { return out_.data(); }

  // Runs what `call` puts on the stream, as a graph, and returns the kinds of its nodes.
  std::vector<cudaGraphNodeType> run(const std::function<ncclResult_t(cudaStream_t)>& call) {
    const std::vector<float> poison(kCount + kGuard, -1e6f);
    out_.write(0, poison.data(), 4 * poison.size());
    EXPECT_EQ(cudaStreamBeginCapture(stream_.handle(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(call(stream_.handle()), ncclSuccess) << ncclGetLastError(comm_);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_.handle(), &graph), cudaSuccess);
    size_t count = 0;
    EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
    std::vector<cudaGraphNode_t> nodes(count);
    EXPECT_EQ(cudaGraphGetNodes(graph, nodes.data(), &count), cudaSuccess);
    std::vector<cudaGraphNodeType> types;
    for (const cudaGraphNode_t n : nodes) EXPECT_EQ(cudaGraphNodeGetType(n, &types.emplace_back()), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(replay, stream_.handle()), cudaSuccess);
    stream_.synchronize();
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    return types;
  }
  void expect(const std::function<float(size_t)>& wanted) const {
    std::vector<float> got(kCount + kGuard);
    out_.read(0, got.data(), 4 * got.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], i < kCount ? wanted(i) : -1e6f) << "element " << i;
  }

  ncclComm_t comm_ = nullptr;
  cuda::Stream stream_{0};
  cuda::DeviceMemory in_, out_;
};

const std::vector<cudaGraphNodeType> kOneCopy{cudaGraphNodeTypeMemcpy}, kOneKernel{cudaGraphNodeTypeKernel};

TEST_F(CudaOneRank, WhatOnlyMovesIsOneCopy) {
  for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
    EXPECT_EQ(run([&](cudaStream_t s) { return ncclAllReduce(in(), out(), kCount, ncclFloat, op, comm_, s); }), kOneCopy) << op;
    expect(value);
  }
  EXPECT_EQ(run([&](cudaStream_t s) { return ncclReduceScatter(in(), out(), kCount, ncclFloat, ncclSum, comm_, s); }), kOneCopy);
  expect(value);
  EXPECT_EQ(run([&](cudaStream_t s) { return ncclAllGather(in(), out(), kCount, ncclFloat, comm_, s); }), kOneCopy);
  expect(value);
  EXPECT_EQ(run([&](cudaStream_t s) { return ncclBroadcast(in(), out(), kCount, ncclFloat, 0, comm_, s); }), kOneCopy);
  expect(value);
  EXPECT_EQ(run([&](cudaStream_t s) { return ncclAlltoAll(in(), out(), kCount, ncclFloat, comm_, s); }), kOneCopy);
  expect(value);
}

TEST_F(CudaOneRank, InPlaceIsNothing) {
  EXPECT_TRUE(run([&](cudaStream_t s) { return ncclAllReduce(out(), out(), kCount, ncclFloat, ncclSum, comm_, s); }).empty());
  expect([](size_t) { return -1e6f; });
  EXPECT_TRUE(run([&](cudaStream_t s) { return ncclAllReduce(in(), out(), 0, ncclFloat, ncclSum, comm_, s); }).empty());
}

TEST_F(CudaOneRank, WhatScalesIsAKernel) {
  float factor = 3;
  ncclRedOp_t op{};
  ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate, comm_), ncclSuccess);
  EXPECT_EQ(run([&](cudaStream_t s) { return ncclAllReduce(in(), out(), kCount, ncclFloat, op, comm_, s); }), kOneKernel);
  expect([](size_t i) { return 3 * value(i); });
  EXPECT_EQ(ncclRedOpDestroy(op, comm_), ncclSuccess);
}

}  // namespace
}  // namespace muster
