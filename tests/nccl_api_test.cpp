// The C interface: collectives, messages, groups, streams and operations, right results and errors.
#include <atomic>
#include <chrono>
#include <future>

#include "nccl_support.h"
#include "support/outcome.h"

namespace muster {
namespace {

using test::AllRanks;
using test::Guarded;
using test::run_nccl_processes;
using test::run_nccl_threads;
using testing::HasSubstr;

float input(int rank, size_t i) { return static_cast<float>((static_cast<size_t>(rank) * 7 + i * 3) % 11); }
float sum_over(int n, size_t i) {
  float s = 0;
  for (int r = 0; r < n; ++r) s += input(r, i);
  return s;
}

// Every collective once, each element and the guards looked at.
void check_collectives(ncclComm_t comm, int rank, int n, size_t count, cudaStream_t stream,
                       const std::function<void()>& wait) {
  const auto ranks = static_cast<size_t>(n), me = static_cast<size_t>(rank);
  const auto filled = [&](size_t elements) {
    Guarded<float> b(elements);
    for (size_t i = 0; i < elements; ++i) b[i] = input(rank, i);
    return b;
  };
  const auto expect = [&](Guarded<float>& got, const char* what, const std::function<float(size_t)>& want) {
    wait();
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], want(i)) << what << " of " << count << ", rank " << rank << ", element " << i;
    EXPECT_TRUE(got.is_intact()) << what;
  };
  const int root = n - 1;
  Guarded<float> one = filled(count), all = filled(ranks * count);
  {
    Guarded<float> out(count);
    ASSERT_NCCL(ncclAllReduce(one.data(), out.data(), count, ncclFloat, ncclSum, comm, stream));
    expect(out, "AllReduce", [&](size_t i) { return sum_over(n, i); });
    Guarded<float> in_place = filled(count);
    ASSERT_NCCL(ncclAllReduce(in_place.data(), in_place.data(), count, ncclFloat, ncclMax, comm, stream));
    expect(in_place, "AllReduce in place", [&](size_t i) {
      float m = 0;
      for (int r = 0; r < n; ++r) m = std::max(m, input(r, i));
      return m;
    });
  }
  {
    Guarded<float> out(count);
    ASSERT_NCCL(ncclReduce(one.data(), rank == root ? out.data() : nullptr, count, ncclFloat, ncclSum, root,
                           comm, stream));
    wait();
    if (rank == root) {
      expect(out, "Reduce", [&](size_t i) { return sum_over(n, i); });
    } else {
      EXPECT_TRUE(out.is_untouched());
    }
  }
  {
    Guarded<float> out(count);
    ASSERT_NCCL(
        ncclBroadcast(rank == root ? one.data() : nullptr, out.data(), count, ncclFloat, root, comm, stream));
    expect(out, "Broadcast", [&](size_t i) { return input(root, i); });
    Guarded<float> in_place = filled(count);
    ASSERT_NCCL(ncclBcast(in_place.data(), count, ncclFloat, 0, comm, stream));
    expect(in_place, "Bcast", [&](size_t i) { return input(0, i); });
  }
  {
    Guarded<float> out(count);
    ASSERT_NCCL(ncclReduceScatter(all.data(), out.data(), count, ncclFloat, ncclSum, comm, stream));
    expect(out, "ReduceScatter", [&](size_t i) { return sum_over(n, me * count + i); });
  }
  {
    Guarded<float> out(ranks * count);
    ASSERT_NCCL(ncclAllGather(one.data(), out.data(), count, ncclFloat, comm, stream));
    expect(out, "AllGather", [&](size_t i) { return input(static_cast<int>(i / count), i % count); });
  }
  {
    Guarded<float> out(ranks * count);
    ASSERT_NCCL(ncclAlltoAll(all.data(), out.data(), count, ncclFloat, comm, stream));
    expect(out, "AlltoAll",
           [&](size_t i) { return input(static_cast<int>(i / count), me * count + i % count); });
  }
  {
    Guarded<float> out(ranks * count);
    ASSERT_NCCL(
        ncclGather(one.data(), rank == root ? out.data() : nullptr, count, ncclFloat, root, comm, stream));
    wait();
    if (rank == root) {
      expect(out, "Gather", [&](size_t i) { return input(static_cast<int>(i / count), i % count); });
    } else {
      EXPECT_TRUE(out.is_untouched());
    }
  }
  {
    Guarded<float> out(count);
    ASSERT_NCCL(
        ncclScatter(rank == root ? all.data() : nullptr, out.data(), count, ncclFloat, root, comm, stream));
    expect(out, "Scatter", [&](size_t i) { return input(root, me * count + i); });
  }
}

const auto kNothing = [] {};

TEST(NcclApi, CollectivesAreRightOnThreads) {
  for (const int n : {1, 2, 3})
    run_nccl_threads(n, [&](ncclComm_t comm, int rank) {
      for (const size_t count : {1, 2, 77, 5000}) check_collectives(comm, rank, n, count, nullptr, kNothing);
      // CUDA's names of the default stream.
      check_collectives(comm, rank, n, 3, reinterpret_cast<cudaStream_t>(1), kNothing);
      check_collectives(comm, rank, n, 3, reinterpret_cast<cudaStream_t>(2), kNothing);
    });
}

TEST(NcclApi, CollectivesAreRightBetweenProcesses) {
  run_nccl_processes(3, [](ncclComm_t comm, int rank) {
    for (const size_t count : {1, 1000, 30000}) check_collectives(comm, rank, 3, count, nullptr, kNothing);
  });
}

TEST(NcclApi, CollectivesAreRightOnStreams) {
  run_nccl_threads(3, [](ncclComm_t comm, int rank) {
    cudaStream_t stream = nullptr;
    ASSERT_NCCL(musterStreamCreate(&stream));
    const auto wait = [&] { EXPECT_NCCL(musterStreamSynchronize(stream)); };
    for (const size_t count : {1, 5000}) check_collectives(comm, rank, 3, count, stream, wait);
    EXPECT_NCCL(musterStreamQuery(stream));
    EXPECT_NCCL(musterStreamDestroy(stream));
  });
}

TEST(NcclApi, BuffersOfMemAllocAreUsedInPlaceBetweenProcesses) {
  run_nccl_processes(2, [](ncclComm_t comm, int rank) {
    constexpr size_t count = 1 << 18;
    void *send = nullptr, *recv = nullptr, *handle = nullptr;
    ASSERT_NCCL(ncclMemAlloc(&send, count * sizeof(float)));
    ASSERT_NCCL(ncclMemAlloc(&recv, count * sizeof(float)));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(send) % NCCL_WIN_REQUIRED_ALIGNMENT, 0u);
    ASSERT_NCCL(ncclCommRegister(comm, send, count * sizeof(float), &handle));
    ncclWindow_t window = nullptr;
    ASSERT_NCCL(ncclCommWindowRegister(comm, recv, count * sizeof(float), &window, NCCL_WIN_COLL_SYMMETRIC));
    auto* in = static_cast<float*>(send);
    auto* out = static_cast<float*>(recv);
    for (size_t i = 0; i < count; ++i) in[i] = input(rank, i), out[i] = -1;
    ASSERT_NCCL(ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm, nullptr));
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], sum_over(2, i)) << i;
    EXPECT_NCCL(ncclCommWindowDeregister(comm, window));
    EXPECT_NCCL(ncclCommDeregister(comm, handle));
    EXPECT_NCCL(ncclMemFree(send));
    EXPECT_NCCL(ncclMemFree(recv));
  });
}

// --- messages and groups ---

TEST(NcclApi, AnyGraphOfMessagesOfAGroupCompletesInCallOrder) {
  run_nccl_threads(4, [](ncclComm_t comm, int rank) {
    constexpr int n = 4, kEach = 3;
    std::vector<int> out(n * kEach), in(n * kEach, -1);
    for (int k = 0; k < n * kEach; ++k) out[static_cast<size_t>(k)] = rank * 100 + k;
    ASSERT_NCCL(ncclGroupStart());
    for (int k = 0; k < kEach; ++k)
      for (int peer = n - 1; peer >= 0; --peer) {  // all receives of a round first, on odd ranks
        const auto at = static_cast<size_t>(peer * kEach + k);
        const auto receive = [&] { EXPECT_NCCL(ncclRecv(&in[at], 1, ncclInt, peer, comm, nullptr)); };
        if (rank % 2) receive();
        EXPECT_NCCL(ncclSend(&out[at], 1, ncclInt, peer, comm, nullptr));
        if (rank % 2 == 0) receive();
      }
    ASSERT_NCCL(ncclGroupEnd());
    for (int peer = 0; peer < n; ++peer)
      for (int k = 0; k < kEach; ++k)
        EXPECT_EQ(in[static_cast<size_t>(peer * kEach + k)], peer * 100 + rank * kEach + k);
  });
}

TEST(NcclApi, OneThreadDrivesAllRanksOfTwoCommunicators) {
  AllRanks a(3), b(2);
  std::vector<float> in_a{1, 2, 3}, out_a(3, -1), in_b{10, 20}, out_b(2, -1), received(3, -1);
  ASSERT_NCCL(ncclGroupStart());
  ASSERT_NCCL(ncclGroupStart());
  for (int r = 0; r < 3; ++r)
    ASSERT_NCCL(ncclAllReduce(&in_a[static_cast<size_t>(r)], &out_a[static_cast<size_t>(r)], 1, ncclFloat,
                              ncclSum, a[r], nullptr));
  ASSERT_NCCL(ncclGroupEnd());
  EXPECT_THAT(out_a, testing::Each(-1));  // the inner end runs nothing
  for (int r = 0; r < 2; ++r)
    ASSERT_NCCL(ncclAllReduce(&in_b[static_cast<size_t>(r)], &out_b[static_cast<size_t>(r)], 1, ncclFloat,
                              ncclMax, b[r], nullptr));
  for (int r = 0; r < 3; ++r) {
    ASSERT_NCCL(ncclSend(&in_a[static_cast<size_t>(r)], 1, ncclFloat, (r + 1) % 3, a[r], nullptr));
    ASSERT_NCCL(ncclRecv(&received[static_cast<size_t>(r)], 1, ncclFloat, (r + 2) % 3, a[r], nullptr));
  }
  ASSERT_NCCL(ncclGroupEnd());
  EXPECT_THAT(out_a, testing::Each(6));
  EXPECT_THAT(out_b, testing::Each(20));
  EXPECT_THAT(received, testing::ElementsAre(3, 1, 2));
}

TEST(NcclApi, RanksAreMadeInAGroup) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ncclComm_t comms[2] = {};
  ASSERT_NCCL(ncclGroupStart());
  for (int r = 0; r < 2; ++r) ASSERT_NCCL(ncclCommInitRank(&comms[r], 2, id, r));
  ncclResult_t state = ncclSuccess;
  ASSERT_NCCL(ncclCommGetAsyncError(comms[0], &state));
  EXPECT_EQ(state, ncclInProgress);
  int count = 0;
  EXPECT_NCCL_FAILS(ncclCommCount(comms[0], &count), ncclInvalidArgument, "still being made");
  ASSERT_NCCL(ncclGroupEnd());  // what a query had to say doesn't concern the group
  for (int r = 0; r < 2; ++r) {
    int rank = -1, device = -1;
    EXPECT_NCCL(ncclCommCount(comms[r], &count));
    EXPECT_NCCL(ncclCommUserRank(comms[r], &rank));
    EXPECT_NCCL(ncclCommCuDevice(comms[r], &device));
    EXPECT_NCCL(ncclCommGetAsyncError(comms[r], &state));
    EXPECT_EQ(count, 2);
    EXPECT_EQ(rank, r);
    EXPECT_EQ(device, 0);
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_NCCL(ncclCommDestroy(comms[r]));
  }
}

TEST(NcclApi, AnErrorInAGroupIsItsResultAndNothingOfItRuns) {
  AllRanks ranks(2);
  float in[2] = {1, 2}, out[2] = {-1, -1};
  ASSERT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclAllReduce(&in[0], &out[0], 1, ncclFloat, ncclSum, ranks[0], nullptr));
  EXPECT_EQ(ncclBroadcast(&in[0], &out[0], 1, ncclFloat, 5, ranks[0], nullptr), ncclInvalidArgument);
  EXPECT_NCCL(ncclAllReduce(&in[1], &out[1], 1, ncclFloat, ncclSum, ranks[1], nullptr));
  EXPECT_EQ(ncclSend(&in[1], 1, static_cast<ncclDataType_t>(99), 0, ranks[1], nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(out[0], -1);
  EXPECT_EQ(out[1], -1);
  EXPECT_NCCL_FAILS(ncclGroupEnd(), ncclInvalidUsage, "no group to end");
  // The thread's next group works, and the communicators do.
  ASSERT_NCCL(ncclGroupStart());
  for (int r = 0; r < 2; ++r)
    EXPECT_NCCL(ncclAllReduce(&in[r], &out[r], 1, ncclFloat, ncclSum, ranks[r], nullptr));
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[1], 3);
}

TEST(NcclApi, AnErrorInANestedGroupIsTheResultOfTheWhole) {
  AllRanks ranks(1);
  float x = 1, y = -1;
  ASSERT_NCCL(ncclGroupStart());
  ASSERT_NCCL(ncclGroupStart());
  EXPECT_EQ(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_NCCL(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, ranks[0], nullptr));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(y, -1);
  EXPECT_NCCL(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, ranks[0], nullptr));
  EXPECT_EQ(y, 1);
}

TEST(NcclApi, AGroupIsSimulatedWithoutRunning) {
  AllRanks ranks(2);
  std::vector<float> in(1 << 20, 1), out(1 << 20, -1);
  const auto estimate = [&](size_t count) {
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    EXPECT_NCCL(ncclGroupStart());
    for (int r = 0; r < 2; ++r)
      EXPECT_NCCL(ncclAllReduce(in.data(), out.data(), count, ncclFloat, ncclSum, ranks[r], nullptr));
    EXPECT_NCCL(ncclGroupSimulateEnd(&info));
    return info.estimatedTime;
  };
  const float small = estimate(1), large = estimate(1 << 20);
  EXPECT_GT(small, 0.05f);
  EXPECT_LT(small, 5.0f);
  EXPECT_GT(large, 100.0f);
  EXPECT_LT(large, 10000.0f);
  EXPECT_THAT(out, testing::Each(-1));
  ASSERT_NCCL(ncclGroupStart());
  EXPECT_NCCL_FAILS(ncclGroupSimulateEnd(nullptr), ncclInvalidArgument, "simInfo is NULL");
  ncclSimInfo_t raw{};
  ASSERT_NCCL(ncclGroupStart());
  EXPECT_NCCL_FAILS(ncclGroupSimulateEnd(&raw), ncclInvalidArgument, "NCCL_SIM_INFO_INITIALIZER");
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);  // both groups have ended
}

// --- streams ---

TEST(NcclApi, StreamsThatAreNoneAreRefused) {
  AllRanks ranks(1);
  float x = 1;
  int local = 0;
  cudaStream_t stream = nullptr;
  ASSERT_NCCL(musterStreamCreate(&stream));
  ASSERT_NE(stream, nullptr);
  EXPECT_NCCL(musterStreamDestroy(stream));
  const auto use = [&](void* s) {
    return ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, ranks[0], static_cast<cudaStream_t>(s));
  };
  EXPECT_NCCL_FAILS(use(stream), ncclInvalidArgument, "was destroyed before");
  EXPECT_NCCL_FAILS(use(&local), ncclInvalidArgument, "musterStreamCreate");
  EXPECT_NCCL_FAILS(use(ranks[0]), ncclInvalidArgument, "musterStreamCreate");
  EXPECT_NCCL_FAILS(use(reinterpret_cast<char*>(stream) + 8), ncclInvalidArgument, "musterStreamCreate");
  EXPECT_NCCL_FAILS(musterStreamDestroy(stream), ncclInvalidArgument, "was destroyed before");
  EXPECT_NCCL_FAILS(musterStreamDestroy(nullptr), ncclInvalidArgument, "stream");
  EXPECT_NCCL_FAILS(musterStreamCreate(nullptr), ncclInvalidArgument, "stream is NULL");
  EXPECT_NCCL(musterStreamSynchronize(nullptr));
  EXPECT_NCCL(musterStreamQuery(nullptr));
}

TEST(NcclApi, AStreamSaysThatItIsBusyAndWhatFailed) {
  run_nccl_threads(2, [](ncclComm_t comm, int rank) {
    cudaStream_t stream = nullptr;
    ASSERT_NCCL(musterStreamCreate(&stream));
    float x[2] = {1, 1}, y[2] = {};
    static std::promise<void> seen;
    if (rank == 0) {
      ASSERT_NCCL(ncclAllReduce(x, y, 1, ncclFloat, ncclSum, comm, stream));
      EXPECT_EQ(musterStreamQuery(stream), ncclInProgress);
      seen.set_value();
    } else {
      seen.get_future().wait();
      ASSERT_NCCL(ncclAllReduce(x, y, 2, ncclFloat, ncclSum, comm, stream));  // another count
    }
    EXPECT_NCCL_FAILS(musterStreamSynchronize(stream), ncclInvalidUsage, "calls don't match");
    EXPECT_NCCL(musterStreamSynchronize(stream));  // said once
    ncclResult_t state = ncclSuccess;
    EXPECT_NCCL(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(comm), HasSubstr("calls don't match"));
    EXPECT_NCCL(musterStreamDestroy(stream));
  });
}

// --- handles and codes ---

TEST(NcclApi, HandlesThatAreNoneAreRefused) {
  ncclComm_t comm = nullptr;
  ASSERT_NCCL(ncclCommInitAll(&comm, 1, nullptr));
  float x = 1;
  const auto use = [&](void* c) {
    return ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, static_cast<ncclComm_t>(c), nullptr);
  };
  EXPECT_NCCL(use(comm));
  EXPECT_NCCL(ncclCommDestroy(comm));
  EXPECT_NCCL_FAILS(use(comm), ncclInvalidArgument, "was destroyed or aborted before");
  EXPECT_NCCL_FAILS(ncclCommDestroy(comm), ncclInvalidArgument, "was destroyed or aborted before");
  EXPECT_NCCL_FAILS(ncclCommAbort(comm), ncclInvalidArgument, "was destroyed or aborted before");
  EXPECT_NCCL_FAILS(use(nullptr), ncclInvalidArgument, "comm is NULL");
  EXPECT_NCCL_FAILS(use(&x), ncclInvalidArgument, "no communicator of this library");
  EXPECT_NCCL_FAILS(use(reinterpret_cast<void*>(uintptr_t{0xdeadbeefdeadbeef})), ncclInvalidArgument,
                    "no communicator");
  EXPECT_THAT(ncclGetLastError(comm), HasSubstr("was destroyed or aborted before"));
  // A rank without a color has a NULL communicator, and programs end it like the others.
  EXPECT_NCCL(ncclCommDestroy(nullptr));
  EXPECT_NCCL(ncclCommAbort(nullptr));
  EXPECT_NCCL(ncclCommFinalize(nullptr));
}

// A handle is given again only long after it was given back.
TEST(NcclApi, AStaleHandleStaysStale) {
  ncclComm_t first = nullptr;
  ASSERT_NCCL(ncclCommInitAll(&first, 1, nullptr));
  ASSERT_NCCL(ncclCommDestroy(first));
  for (int i = 0; i < 100; ++i) {
    ncclComm_t next = nullptr;
    ASSERT_NCCL(ncclCommInitAll(&next, 1, nullptr));
    int count = 0;
    EXPECT_EQ(ncclCommCount(first, &count), ncclInvalidArgument);
    ASSERT_NCCL(ncclCommDestroy(next));
  }
}

TEST(NcclApi, MissingPlacesForAnswersAreRefusedByName) {
  AllRanks ranks(1);
  EXPECT_NCCL_FAILS(ncclGetVersion(nullptr), ncclInvalidArgument, "version is NULL");
  EXPECT_NCCL_FAILS(ncclGetUniqueId(nullptr), ncclInvalidArgument, "uniqueId is NULL");
  EXPECT_NCCL_FAILS(ncclCommCount(ranks[0], nullptr), ncclInvalidArgument, "count is NULL");
  EXPECT_NCCL_FAILS(ncclCommUserRank(ranks[0], nullptr), ncclInvalidArgument, "rank is NULL");
  EXPECT_NCCL_FAILS(ncclCommCuDevice(ranks[0], nullptr), ncclInvalidArgument, "device is NULL");
  EXPECT_NCCL_FAILS(ncclCommGetAsyncError(ranks[0], nullptr), ncclInvalidArgument, "asyncError is NULL");
  EXPECT_NCCL_FAILS(ncclMemAlloc(nullptr, 8), ncclInvalidArgument, "ptr is NULL");
  EXPECT_NCCL_FAILS(ncclCommInitAll(nullptr, 1, nullptr), ncclInvalidArgument, "comm is NULL");
  ncclComm_t comm = nullptr;
  EXPECT_NCCL_FAILS(ncclCommInitAll(&comm, 0, nullptr), ncclInvalidArgument, "ndev 0");
  const int devices[] = {0, -1};
  ncclComm_t two[2] = {};
  EXPECT_NCCL_FAILS(ncclCommInitAll(two, 2, devices), ncclInvalidArgument, "devlist[1] is -1");
}

TEST(NcclApi, DevicesAreTheNumbersGiven) {
  const int devices[] = {5, 3};
  ncclComm_t comms[2] = {};
  ASSERT_NCCL(ncclCommInitAll(comms, 2, devices));
  for (int r = 0; r < 2; ++r) {
    int device = -1;
    EXPECT_NCCL(ncclCommCuDevice(comms[r], &device));
    EXPECT_EQ(device, devices[r]);
    EXPECT_NCCL(ncclCommDestroy(comms[r]));
  }
}

TEST(NcclApi, AnIdThatIsNoneIsRefused) {
  ncclUniqueId id{};
  ncclComm_t comm = reinterpret_cast<ncclComm_t>(&id);
  EXPECT_NCCL_FAILS(ncclCommInitRank(&comm, 2, id, 0), ncclInvalidArgument, "id");
  EXPECT_EQ(comm, nullptr);
  ASSERT_NCCL(ncclGetUniqueId(&id));
  EXPECT_NCCL_FAILS(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument, "rank 2 is not in 0..1");
}

TEST(NcclApi, CodesHaveTheirTexts) {
  EXPECT_STREQ(ncclGetErrorString(ncclSuccess), "no error");
  EXPECT_THAT(ncclGetErrorString(ncclUnhandledCudaError), HasSubstr("unhandled cuda error"));
  EXPECT_THAT(ncclGetErrorString(ncclSystemError), HasSubstr("unhandled system error"));
  EXPECT_THAT(ncclGetErrorString(ncclInternalError), HasSubstr("internal error"));
  EXPECT_THAT(ncclGetErrorString(ncclInvalidArgument), HasSubstr("invalid argument"));
  EXPECT_THAT(ncclGetErrorString(ncclInvalidUsage), HasSubstr("invalid usage"));
  EXPECT_THAT(ncclGetErrorString(ncclRemoteError), HasSubstr("remote process exited"));
  EXPECT_THAT(ncclGetErrorString(ncclInProgress), HasSubstr("in progress"));
  EXPECT_THAT(ncclGetErrorString(ncclTimeout), HasSubstr("timeout"));
  EXPECT_THAT(ncclGetErrorString(static_cast<ncclResult_t>(99)), HasSubstr("unknown result code"));
}

TEST(NcclApi, TheLastErrorIsTheThreadsAndTheCommunicators) {
  AllRanks ranks(2);
  float x = 1;
  EXPECT_EQ(ncclBroadcast(&x, &x, 1, ncclFloat, 7, ranks[0], nullptr), ncclInvalidArgument);
  std::thread([&] {
    EXPECT_EQ(ncclBroadcast(&x, &x, 1, ncclFloat, 8, ranks[1], nullptr), ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("root 8"));
  }).join();
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("root 7"));
  EXPECT_THAT(ncclGetLastError(ranks[0]), HasSubstr("root 7"));
  EXPECT_THAT(ncclGetLastError(ranks[1]), HasSubstr("root 8"));
  // A thread that had none, like a watchdog's, is told of the process's.
  std::thread([] { EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("root 8")); }).join();
}

TEST(NcclApi, DifferentCallsAreSpeltOutOnEveryRank) {
  run_nccl_threads(2, [](ncclComm_t comm, int rank) {
    float x[2] = {1, 1};
    EXPECT_EQ(ncclAllReduce(x, x, rank == 0 ? 1 : 2, ncclFloat, ncclSum, comm, nullptr), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(comm), HasSubstr("count 1"));
    EXPECT_THAT(ncclGetLastError(comm), HasSubstr("count 2"));
    ncclResult_t state = ncclSuccess;
    EXPECT_NCCL(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclInvalidUsage);
  });
}

// From another thread, while a call waits for a rank that never comes.
TEST(NcclApi, AbortEndsACallUnderWay) {
  ncclComm_t comms[2] = {};
  ASSERT_NCCL(ncclCommInitAll(comms, 2, nullptr));
  std::atomic<bool> entered{false};
  std::thread waiting([&] {
    float x = 1;
    entered = true;
    EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comms[0], nullptr), ncclRemoteError);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("abort"));
  });
  while (!entered) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_NCCL(ncclCommAbort(comms[0]));
  waiting.join();
  ncclResult_t state = ncclSuccess;
  EXPECT_NCCL(ncclCommGetAsyncError(comms[1], &state));
  EXPECT_EQ(state, ncclRemoteError);
  EXPECT_NCCL(ncclCommAbort(comms[1]));
}

}  // namespace
}  // namespace muster
