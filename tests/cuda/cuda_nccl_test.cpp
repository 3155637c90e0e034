// NCCL's interface on GPU memory and CUDA streams: ranks of one process, as devices of one thread and as
// threads.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "cuda/gpus.h"
#include "cuda/nccl_ranks.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "muster/zero.h"
#include "nccl.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::CudaNccl;
using test::kRanks;
using testing::HasSubstr;

TEST_F(CudaNccl, CollectivesOfDevicesAndOfThreads) {
  constexpr int kRoot = 2;
  const auto sum = [](size_t i) {
    float s = 0;
    for (int r = 0; r < kRanks; ++r) s += value(r, i);
    return s;
  };
  for (const bool threads : {false, true})
    for (const size_t n : {size_t{1}, size_t{1001}, kMost}) {
      SCOPED_TRACE(testing::Message() << (threads ? "threads, " : "devices, ") << n << " elements");
      fill(kRanks * n);
      all(threads, [&](int r) {
        return ncclAllReduce(input(r), output(r), n, ncclFloat, ncclSum, comm(r), stream(r));
      });
      for (int r = 0; r < kRanks; ++r) {
        const auto got = result(r, n);
        for (size_t i = 0; i < n; ++i)
          ASSERT_EQ(got[i], sum(i)) << "all-reduce, rank " << r << " element " << i;
      }
      all(threads, [&](int r) {
        return ncclReduceScatter(input(r), output(r), n, ncclFloat, ncclSum, comm(r), stream(r));
      });
      for (int r = 0; r < kRanks; ++r) {
        const auto got = result(r, n);
        for (size_t i = 0; i < n; ++i)
          ASSERT_EQ(got[i], sum(static_cast<size_t>(r) * n + i))
              << "reduce-scatter, rank " << r << " element " << i;
      }
      all(threads,
          [&](int r) { return ncclAllGather(input(r), output(r), n, ncclFloat, comm(r), stream(r)); });
      for (int r = 0; r < kRanks; ++r) {
        const auto got = result(r, kRanks * n);
        for (size_t i = 0; i < kRanks * n; ++i)
          ASSERT_EQ(got[i], value(static_cast<int>(i / n), i % n)) << "all-gather, rank " << r;
      }
      all(threads,
          [&](int r) { return ncclAlltoAll(input(r), output(r), n, ncclFloat, comm(r), stream(r)); });
      for (int r = 0; r < kRanks; ++r) {
        const auto got = result(r, kRanks * n);
        for (size_t i = 0; i < kRanks * n; ++i)
          ASSERT_EQ(got[i], value(static_cast<int>(i / n), static_cast<size_t>(r) * n + i % n))
              << "all-to-all, rank " << r;
      }
      all(threads,
          [&](int r) { return ncclBroadcast(input(r), output(r), n, ncclFloat, kRoot, comm(r), stream(r)); });
      for (int r = 0; r < kRanks; ++r) {
        const auto got = result(r, n);
        for (size_t i = 0; i < n; ++i) ASSERT_EQ(got[i], value(kRoot, i)) << "broadcast, rank " << r;
      }
      all(threads, [&](int r) {
        return ncclReduce(input(r), r == kRoot ? output(r) : nullptr, n, ncclFloat, ncclMax, kRoot, comm(r),
                          stream(r));
      });
      const auto reduced = result(kRoot, n);
      for (size_t i = 0; i < n; ++i) {
        float largest = 0;
        for (int r = 0; r < kRanks; ++r) largest = std::max(largest, value(r, i));
        ASSERT_EQ(reduced[i], largest) << "reduce, element " << i;
      }
      all(threads, [&](int r) {
        return ncclGather(input(r), r == kRoot ? output(r) : nullptr, n, ncclFloat, kRoot, comm(r),
                          stream(r));
      });
      const auto gathered = result(kRoot, kRanks * n);
      for (size_t i = 0; i < kRanks * n; ++i)
        ASSERT_EQ(gathered[i], value(static_cast<int>(i / n), i % n)) << "gather";
      all(threads, [&](int r) {
        return ncclScatter(r == kRoot ? input(r) : nullptr, output(r), n, ncclFloat, kRoot, comm(r),
                           stream(r));
      });
      for (int r = 0; r < kRanks; ++r) {
        const auto got = result(r, n);
        for (size_t i = 0; i < n; ++i)
          ASSERT_EQ(got[i], value(kRoot, static_cast<size_t>(r) * n + i)) << "scatter, rank " << r;
      }
    }
}

TEST_F(CudaNccl, AScalarInGpuMemoryIsReadWhenTheCallRuns) {
  constexpr size_t kCount = 300;
  fill(kCount);
  std::vector<ncclRedOp_t> ops(kRanks);
  std::vector<cuda::DeviceMemory> scalars;
  for (int r = 0; r < kRanks; ++r) {
    scalars.emplace_back(streams[static_cast<size_t>(r)]->device(), 4);
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&ops[static_cast<size_t>(r)], scalars.back().data(), ncclFloat,
                                       ncclScalarDevice, comm(r)),
              ncclSuccess);
    const float factor = static_cast<float>(r + 1);
    scalars.back().write(0, &factor, 4);
  }
  all(false, [&](int r) {
    return ncclAllReduce(input(r), output(r), kCount, ncclFloat, ops[static_cast<size_t>(r)], comm(r),
                         stream(r));
  });
  const auto got = result(1, kCount);
  for (size_t i = 0; i < kCount; ++i) {
    float want = 0;
    for (int r = 0; r < kRanks; ++r) want += static_cast<float>(r + 1) * value(r, i);
    ASSERT_EQ(got[i], want) << "element " << i;
  }
}

TEST_F(CudaNccl, SeveralCallsOfAGroupAndStreamsInTurn) {
  constexpr size_t kCount = 2000;
  fill(kCount);
  std::vector<std::unique_ptr<cuda::Stream>> others;
  for (int r = 0; r < kRanks; ++r)
    others.push_back(std::make_unique<cuda::Stream>(streams[static_cast<size_t>(r)]->device()));
  // out = sum; then, on other streams, out = out of rank 1, in place.
  all(false, [&](int r) {
    return ncclAllReduce(input(r), output(r), kCount, ncclFloat, ncclSum, comm(r), stream(r));
  });
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; ++r) {
    ASSERT_EQ(ncclAllReduce(output(r), output(r), kCount, ncclFloat, ncclSum, comm(r), stream(r)),
              ncclSuccess);
    ASSERT_EQ(ncclAllReduce(output(r), output(r), kCount, ncclFloat, ncclAvg, comm(r), stream(r)),
              ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; ++r)
    ASSERT_EQ(ncclAllReduce(output(r), output(r), kCount, ncclFloat, ncclSum, comm(r),
                            others[static_cast<size_t>(r)]->handle()),
              ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  for (auto& s : others) s->synchronize();
  float want = 0;
  for (int r = 0; r < kRanks; ++r) want += value(r, 77);
  for (int r = 0; r < kRanks; ++r) EXPECT_EQ(result(r, kCount)[77], want * kRanks * kRanks);
}

TEST_F(CudaNccl, HostMemoryGoesOnBesides) {
  std::vector<std::vector<float>> values(kRanks, std::vector<float>(100));
  for (int r = 0; r < kRanks; ++r)
    std::iota(values[static_cast<size_t>(r)].begin(), values[static_cast<size_t>(r)].end(),
              static_cast<float>(r));
  const auto host = [&](int r) {
    float* p = values[static_cast<size_t>(r)].data();
    return ncclAllReduce(p, p, 100, ncclFloat, ncclSum, comm(r), nullptr);
  };
  all(true, host);
  EXPECT_EQ(values[1][9], 4 * 9 + 6);
  fill(100);
  all(false,
      [&](int r) { return ncclAllReduce(input(r), output(r), 100, ncclFloat, ncclMin, comm(r), stream(r)); });
  all(true, host);
  EXPECT_EQ(values[3][9], 4 * (4 * 9 + 6));
  // One buffer of each kind is refused, and says so.
  EXPECT_EQ(ncclAllReduce(values[0].data(), output(0), 100, ncclFloat, ncclSum, comm(0), stream(0)),
            ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(comm(0)), HasSubstr("plain host memory, which GPUs don't reach"));
}

TEST_F(CudaNccl, MemAllocGivesGpuMemory) {
  void* p = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(ncclMemAlloc(&p, 1000), ncclSuccess);
  EXPECT_EQ(cuda::inspect(p).kind, cuda::MemoryKind::device);
  EXPECT_EQ(cuda::inspect(p).device, 1);
  EXPECT_EQ(ncclMemFree(p), ncclSuccess);
  EXPECT_EQ(cuda::inspect(p).kind, cuda::MemoryKind::host);
}

TEST_F(CudaNccl, CapturedCallsAreReplayed) {
  constexpr size_t kCount = 500;
  std::vector<cudaGraphExec_t> runs(kRanks);
  for (int r = 0; r < kRanks; ++r)
    ASSERT_EQ(cudaStreamBeginCapture(stream(r), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; ++r)
    ASSERT_EQ(ncclAllReduce(input(r), output(r), kCount, ncclFloat, ncclSum, comm(r), stream(r)),
              ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  for (int r = 0; r < kRanks; ++r) {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream(r), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&runs[static_cast<size_t>(r)], graph, 0), cudaSuccess);
    cudaGraphDestroy(graph);
  }
  for (int turn = 0; turn < 2; ++turn) {
    fill(kCount);
    for (int r = 0; r < kRanks; ++r)
      ASSERT_EQ(cudaGraphLaunch(runs[static_cast<size_t>(r)], stream(r)), cudaSuccess);
    for (auto& s : streams) s->synchronize();
    for (int r = 0; r < kRanks; ++r)
      EXPECT_EQ(result(r, kCount)[33], value(0, 33) + value(1, 33) + value(2, 33) + value(3, 33));
  }
  for (cudaGraphExec_t run : runs) cudaGraphExecDestroy(run);
}

TEST_F(CudaNccl, AbortEndsAKernelWhosePeersDontCome) {
  fill(100);
  const auto call = [&](int r) {
    return ncclAllReduce(input(r), output(r), 100, ncclFloat, ncclSum, comm(r), stream(r));
  };
  all(false, call);
  ASSERT_EQ(call(0), ncclSuccess);
  EXPECT_FALSE(streams[0]->idle());
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(ncclCommAbort(comm(r)), ncclSuccess);
    comms[static_cast<size_t>(r)] = nullptr;
  }
  streams[0]->synchronize();
}

TEST_F(CudaNccl, ADifferentCallOfAnotherRankBecomesTheError) {
  fill(2000);
  all(false,
      [&](int r) { return ncclAllReduce(input(r), output(r), 100, ncclFloat, ncclSum, comm(r), stream(r)); });
  for (int r = 0; r < kRanks; ++r)
    ASSERT_EQ(ncclAllReduce(input(r), output(r), r == 2 ? 101 : 100, ncclFloat, ncclSum, comm(r), stream(r)),
              ncclSuccess);
  ncclResult_t state = ncclSuccess;
  for (int r = 0; state == ncclSuccess; r = (r + 1) % kRanks)
    ASSERT_EQ(ncclCommGetAsyncError(comm(r), &state), ncclSuccess);
  EXPECT_EQ(state, ncclInvalidUsage);
  EXPECT_EQ(ncclAllReduce(input(0), output(0), 100, ncclFloat, ncclSum, comm(0), stream(0)),
            ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(comm(0)), HasSubstr("calls on GPU memory don't match"));
  for (int r = 0; r < kRanks; ++r) EXPECT_EQ(ncclCommGetAsyncError(comm(r), &state), ncclSuccess);
  for (auto& s : streams) s->synchronize();
}

// Which would read it with the CPU.
TEST(CudaHostInterface, RefusesGpuMemory) {
  MUSTER_NEEDS_GPUS(1);
  test::run_threads(2, [](Communicator& c, int rank) {
    cuda::DeviceMemory memory(0, 64);
    const auto refused = [](auto&& call) { return test::outcome_of(call); };
    auto* const gpu = reinterpret_cast<float*>(memory.data());
    float host[16] = {};
    for (const auto& o : {refused([&] { c.all_reduce(gpu, gpu, 16, DataType::float32, RedOp::sum); }),
                          refused([&] { c.all_gather(host, gpu, 8, DataType::float32); }),
                          refused([&] { c.send(gpu, 16, DataType::float32, 1 - rank); })}) {
      EXPECT_EQ(o.code, Result::invalid_usage);
      EXPECT_THAT(o.text, HasSubstr("GPU memory"));
    }
    const zero::Tensor there{gpu, 16}, here{host, 16};
    const auto state = refused([&] { zero::Optimizer(c, {&there, 1}); });
    EXPECT_EQ(state.code, Result::invalid_argument);
    EXPECT_THAT(state.text, HasSubstr("initial values of tensor 0 are GPU memory"));
    zero::Optimizer zero(c, {&here, 1});
    EXPECT_THAT(refused([&] { zero.gradient(0, gpu); }).text,
                HasSubstr("gradients of tensor 0 are GPU memory"));
    c.all_reduce(host, host, 16, DataType::float32, RedOp::sum);  // and it goes on
  });
}

}  // namespace
}  // namespace muster
