// Sends, receives and V-variants of NCCL's interface on GPU memory, and what is refused.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "cuda/nccl_ranks.h"
#include "muster.h"
#include "muster/muster.h"
#include "support/outcome.h"

namespace muster {
namespace {

using test::kRanks;
using testing::HasSubstr;

class CudaNcclMessages : public test::CudaNccl {
 protected:
  // Elements that rank `from` sends to rank `to`.
  static size_t length(int from, int to) {
    return (static_cast<size_t>(from) * 5 + static_cast<size_t>(to) * 3) % 7 * 411;
  }
  static constexpr size_t kStride = 3000;  // of parts in a buffer

  void expect_part(int at, size_t begin, int from, size_t from_begin, size_t count, const char* what) {
    const auto got = result(at, kRanks * kStride);
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(got[begin + i], value(from, from_begin + i))
          << what << ": rank " << at << ", from " << from << ", element " << i;
    ASSERT_EQ(got[begin + count], -1.f) << what << ": rank " << at << " behind what came from " << from;
  }
};

TEST_F(CudaNcclMessages, EverybodySendsToEverybodyAsDevicesAndAsThreads) {
  for (const bool threads : {false, true}) {
    fill(kRanks * kStride);
    all(threads, [&](int r) {
      ncclResult_t result = ncclGroupStart();
      for (int i = 0; i < kRanks && result == ncclSuccess; ++i) {
        const int to = (r + i) % kRanks, from = i;
        result = ncclSend(input(r) + static_cast<size_t>(to) * kStride, length(r, to), ncclFloat, to, comm(r),
                          stream(r));
        if (result == ncclSuccess)
          result = ncclRecv(output(r) + static_cast<size_t>(from) * kStride, length(from, r), ncclFloat, from,
                            comm(r), stream(r));
      }
      const ncclResult_t ended = ncclGroupEnd();
      return result == ncclSuccess ? ended : result;
    });
    for (int r = 0; r < kRanks; ++r)
      for (int from = 0; from < kRanks; ++from) {
        expect_part(r, static_cast<size_t>(from) * kStride, from, static_cast<size_t>(r) * kStride,
                    length(from, r), "messages");
        if (HasFatalFailure()) return;
      }
  }
}

// A group's collectives and messages run whatever their order, and messages alone outside groups.
TEST_F(CudaNcclMessages, BesideCollectivesAndAlone) {
  constexpr size_t kCount = 20'000;
  fill(kCount);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; ++r) {
    const auto reduce = [&] {
      EXPECT_EQ(ncclAllReduce(input(r), output(r), 100, ncclFloat, ncclSum, comm(r), stream(r)), ncclSuccess);
    };
    if (r % 2 == 0) reduce();
    // Several to one peer, which arrive in order.
    for (const size_t part : {size_t{0}, size_t{1}}) {
      EXPECT_EQ(
          ncclRecv(output(r) + 1000 + part * 9000, 9000, ncclFloat, (r + 1) % kRanks, comm(r), stream(r)),
          ncclSuccess);
      EXPECT_EQ(
          ncclSend(input(r) + part * 9000, 9000, ncclFloat, (r + kRanks - 1) % kRanks, comm(r), stream(r)),
          ncclSuccess);
    }
    if (r % 2 == 1) reduce();
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  for (auto& s : streams) s->synchronize();
  for (int r = 0; r < kRanks; ++r) {
    const auto got = result(r, kCount);
    for (size_t i = 0; i < 100; ++i) ASSERT_EQ(got[i], value(0, i) + value(1, i) + value(2, i) + value(3, i));
    for (size_t i = 0; i < 18'000; ++i)
      ASSERT_EQ(got[1000 + i], value((r + 1) % kRanks, i)) << "rank " << r << " element " << i;
  }
  fill(10);
  ASSERT_EQ(ncclSend(input(2), 10, ncclFloat, 0, comm(2), stream(2)), ncclSuccess);
  ASSERT_EQ(ncclRecv(output(0), 10, ncclFloat, 2, comm(0), stream(0)), ncclSuccess);
  streams[0]->synchronize();
  EXPECT_EQ(result(0, 10)[9], value(2, 9));
  for (auto& s : streams) s->synchronize();
}

// Rank 0's two messages are on two streams; the group comes after both, and both go on after it.
TEST_F(CudaNcclMessages, AGroupOnTwoStreams) {
  fill(20);
  all(false,
      [&](int r) { return ncclAllReduce(input(r), output(r), 1, ncclFloat, ncclSum, comm(r), stream(r)); });
  cuda::Stream other(streams[0]->device());
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (const int peer : {1, 2}) {
    const cudaStream_t on = peer == 1 ? stream(0) : other.handle();
    ASSERT_EQ(cudaMemsetAsync(input(0) + peer, 0, 4, on), cudaSuccess);
    EXPECT_EQ(ncclSend(input(0) + peer, 1, ncclFloat, peer, comm(0), on), ncclSuccess);
    EXPECT_EQ(ncclRecv(output(peer), 1, ncclFloat, 0, comm(peer), stream(peer)), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  ASSERT_EQ(cudaMemsetAsync(input(0) + 2, 0xff, 4, other.handle()), cudaSuccess);
  for (auto& s : streams) s->synchronize();
  other.synchronize();
  EXPECT_EQ(result(1, 1)[0], 0.f);
  EXPECT_EQ(result(2, 1)[0], 0.f);
}

TEST_F(CudaNcclMessages, ACapturedGroupIsReplayed) {
  std::vector<cudaGraphExec_t> runs(kRanks);
  for (int r = 0; r < kRanks; ++r)
    ASSERT_EQ(cudaStreamBeginCapture(stream(r), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(ncclSend(input(r), 500, ncclFloat, (r + 1) % kRanks, comm(r), stream(r)), ncclSuccess);
    EXPECT_EQ(ncclRecv(output(r), 500, ncclFloat, (r + 3) % kRanks, comm(r), stream(r)), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  for (int r = 0; r < kRanks; ++r) {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream(r), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&runs[static_cast<size_t>(r)], graph, 0), cudaSuccess);
    cudaGraphDestroy(graph);
  }
  // Between replays other groups use the tables that graphs don't keep.
  for (int turn = 0; turn < 3; ++turn) {
    fill(500);
    for (int r = 0; r < kRanks; ++r)
      ASSERT_EQ(cudaGraphLaunch(runs[static_cast<size_t>(r)], stream(r)), cudaSuccess);
    for (auto& s : streams) s->synchronize();
    for (int r = 0; r < kRanks; ++r)
      ASSERT_EQ(result(r, 500)[499], value((r + 3) % kRanks, 499)) << "turn " << turn;
    all(false, [&](int r) {
      return r == 0   ? ncclSend(input(0), 7, ncclFloat, 1, comm(0), stream(0))
             : r == 1 ? ncclRecv(output(1), 7, ncclFloat, 0, comm(1), stream(1))
                      : ncclSuccess;
    });
    EXPECT_EQ(result(1, 7)[6], value(0, 6));
  }
  for (cudaGraphExec_t run : runs) cudaGraphExecDestroy(run);
}

TEST_F(CudaNcclMessages, CollectivesWithACountPerRank) {
  for (int turn = 0; turn < 2; ++turn) {
    fill(kRanks * kStride);
    const size_t counts[kRanks] = {1200, 0, 3, 2999}, displs[kRanks] = {0, kStride, 2 * kStride, 3 * kStride};
    all(false, [&](int r) {
      return musterAllGatherV(input(r), counts[r], output(r), counts, displs, ncclFloat, comm(r), stream(r));
    });
    for (int r = 0; r < kRanks; ++r)
      for (int from = 0; from < kRanks; ++from) {
        expect_part(r, displs[from], from, 0, counts[from], "all_gather_v");
        if (HasFatalFailure()) return;
      }
    fill(kRanks * kStride);
    all(true, [&](int r) {
      return musterReduceScatterV(input(r), output(r), counts, ncclFloat, ncclSum, comm(r), stream(r));
    });
    for (int r = 0; r < kRanks; ++r) {
      const size_t begin = std::accumulate(counts, counts + r, size_t{0});
      const auto got = result(r, kStride);
      for (size_t i = 0; i < counts[r]; ++i)
        ASSERT_EQ(got[i],
                  value(0, begin + i) + value(1, begin + i) + value(2, begin + i) + value(3, begin + i))
            << "reduce_scatter_v, rank " << r;
      ASSERT_EQ(got[counts[r]], -1.f);
    }
    for (const bool in_place : {false, true}) {
      fill(kRanks * kStride);
      const auto sent = [&](int from, int to) {
        return in_place ? length(std::min(from, to), std::max(from, to)) : length(from, to);
      };
      all(turn == 0, [&](int r) {
        std::vector<size_t> send_counts, recv_counts;
        for (int peer = 0; peer < kRanks; ++peer) {
          send_counts.push_back(sent(r, peer));
          recv_counts.push_back(sent(peer, r));
        }
        return musterAlltoAllV(input(r), send_counts.data(), displs, in_place ? input(r) : output(r),
                               recv_counts.data(), displs, ncclFloat, comm(r), stream(r));
      });
      for (int r = 0; r < kRanks; ++r) {
        std::vector<float> got(kRanks * kStride);
        (in_place ? in : out)[static_cast<size_t>(r)].read(0, got.data(), 4 * got.size());
        for (int from = 0; from < kRanks; ++from)
          for (size_t i = 0; i < sent(from, r); ++i)
            ASSERT_EQ(got[displs[from] + i], value(from, static_cast<size_t>(r) * kStride + i))
                << "all_to_all_v, rank " << r << " from " << from << " element " << i
                << (in_place ? ", in place" : "");
      }
    }
  }
}

TEST_F(CudaNcclMessages, NothingIsSentBetweenNullPointersToo) {
  all(false, [&](int r) {
    ncclResult_t result = cudaSetDevice(streams[static_cast<size_t>(r)]->device()) == cudaSuccess
                              ? ncclGroupStart()
                              : ncclSystemError;
    const float* const from = r % 2 == 0 ? input(r) : nullptr;
    if (result == ncclSuccess) result = ncclSend(from, 0, ncclFloat, (r + 1) % kRanks, comm(r), stream(r));
    if (result == ncclSuccess) result = ncclRecv(nullptr, 0, ncclFloat, (r + 3) % kRanks, comm(r), stream(r));
    const ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess ? ended : result;
  });
}

// The current GPU when the communicator was made says where it is, not the current one of the call.
TEST_F(CudaNcclMessages, NothingIsSentFromWhateverGpu) {
  std::vector<ncclComm_t> made(kRanks);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; ++r) {
    ASSERT_EQ(cudaSetDevice(streams[static_cast<size_t>(r)]->device()), cudaSuccess);
    ASSERT_EQ(ncclCommInitRank(&made[static_cast<size_t>(r)], kRanks, id, r), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  std::swap(made, comms);  // TearDown destroys them
  for (ncclComm_t c : made) EXPECT_EQ(ncclCommDestroy(c), ncclSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  fill(10);
  for (const size_t n : {size_t{0}, size_t{10}})
    all(true, [&](int r) {
      ncclResult_t result = ncclGroupStart();
      if (result == ncclSuccess)
        result = ncclSend(input(r), n, ncclFloat, (r + 1) % kRanks, comm(r), stream(r));
      if (result == ncclSuccess)
        result = ncclRecv(output(r), n, ncclFloat, (r + 3) % kRanks, comm(r), stream(r));
      const ncclResult_t ended = ncclGroupEnd();
      return result == ncclSuccess ? ended : result;
    });
  for (int r = 0; r < kRanks; ++r) {
    int device = -1;
    EXPECT_EQ(ncclCommCuDevice(comm(r), &device), ncclSuccess);
    EXPECT_EQ(device, streams[static_cast<size_t>(r)]->device());
    EXPECT_EQ(result(r, 10)[9], value((r + 3) % kRanks, 9));
  }
}

// Messages have no number among the calls: the call before them is none that ranks that wait could differ in.
TEST_F(CudaNcclMessages, FirstOnesBehindAnotherCallMayWaitForEachOther) {
  fill(10);
  std::vector<float> host(kRanks);
  all(true, [&](int r) {
    float& x = host[static_cast<size_t>(r)];
    ncclResult_t result = ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm(r), nullptr);
    if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));  // others look after 20
    if (result == ncclSuccess) result = ncclGroupStart();
    if (result == ncclSuccess)
      result = ncclSend(input(r), 10, ncclFloat, (r + 1) % kRanks, comm(r), stream(r));
    if (result == ncclSuccess)
      result = ncclRecv(output(r), 10, ncclFloat, (r + 3) % kRanks, comm(r), stream(r));
    const ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess ? ended : result;
  });
  EXPECT_EQ(result(2, 10)[9], value(1, 9));
}

// Whatever GPU is the thread's current one.
TEST_F(CudaNcclMessages, AnEmptyFirstCallDecidesNothing) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  fill(10);
  for (const size_t n : {size_t{0}, size_t{10}})
    all(false,
        [&](int r) { return ncclAllReduce(input(r), output(r), n, ncclFloat, ncclSum, comm(r), stream(r)); });
  EXPECT_EQ(result(2, 10)[9], value(0, 9) + value(1, 9) + value(2, 9) + value(3, 9));
}

TEST_F(CudaNcclMessages, ADifferentLengthBecomesTheError) {
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(ncclSend(input(r), 10, ncclFloat, (r + 1) % kRanks, comm(r), stream(r)), ncclSuccess);
    EXPECT_EQ(ncclRecv(output(r), r == 1 ? 11 : 10, ncclFloat, (r + 3) % kRanks, comm(r), stream(r)),
              ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess) ASSERT_EQ(ncclCommGetAsyncError(comm(1), &state), ncclSuccess);
  EXPECT_EQ(state, ncclInvalidUsage);
  EXPECT_EQ(ncclSend(input(1), 1, ncclFloat, 0, comm(1), stream(1)), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(comm(1)),
              HasSubstr("sent were 10 elements of float32, the receive is for 11"));
  for (int r = 0; r < kRanks; ++r) EXPECT_EQ(ncclCommGetAsyncError(comm(r), &state), ncclSuccess);
  for (auto& s : streams) s->synchronize();
}

// What only this rank got wrong is refused before anything is launched, and the communicator goes on.
TEST_F(CudaNcclMessages, WhatIsRefusedLeavesTheCommunicatorUsable) {
  std::vector<float> host(100);
  fill(100);
  EXPECT_EQ(ncclAllReduce(host.data(), output(0), 100, ncclFloat, ncclSum, comm(0), stream(0)),
            ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(comm(0)), HasSubstr("plain host memory, which GPUs don't reach"));
  EXPECT_EQ(ncclBroadcast(input(0), host.data(), 100, ncclFloat, 0, comm(0), stream(0)), ncclInvalidArgument);
  // In a group the whole of it is lost.
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclSend(input(0), 1, ncclFloat, 1, comm(0), stream(0)), ncclSuccess);
  EXPECT_EQ(ncclAllGather(input(0), host.data(), 1, ncclFloat, comm(0), stream(0)), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  // Another GPU than the communicator's.
  EXPECT_EQ(ncclSend(input(1), 1, ncclFloat, 1, comm(0), stream(0)), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(comm(0)), HasSubstr("A communicator stays with one GPU"));
  // Rank 0 to itself, from one kind of memory to the other; half of a message to itself.
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclSend(input(0), 1, ncclFloat, 0, comm(0), stream(0)), ncclSuccess);
  EXPECT_EQ(ncclRecv(host.data(), 1, ncclFloat, 0, comm(0), nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(ncclSend(input(0), 1, ncclFloat, 0, comm(0), stream(0)), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(comm(0)), HasSubstr("sends 1 messages to itself and receives 0"));
  EXPECT_EQ(musterBarrier(comm(0), stream(0)), ncclInvalidArgument);

  all(true,
      [&](int r) { return ncclAllReduce(input(r), output(r), 100, ncclFloat, ncclMax, comm(r), stream(r)); });
  float most = 0;
  for (int r = 0; r < kRanks; ++r) most = std::max(most, value(r, 50));
  EXPECT_EQ(result(3, 100)[50], most);
}

// Which would copy it with the CPU.
TEST_F(CudaNcclMessages, OneSidedCallsAreForHostMemory) {
  Communicator alone = std::move(Communicator::init_all(1).front());
  const Window window = alone.register_window(output(0), 4096);
  std::vector<float> host(1);
  const test::Outcome o = test::outcome_of([&] { alone.put_signal(host.data(), 4, 0, window, 0, {}); });
  EXPECT_EQ(o.code, Result::invalid_usage);
  EXPECT_THAT(o.text, HasSubstr("one-sided calls are for host memory"));
}

}  // namespace
}  // namespace muster
