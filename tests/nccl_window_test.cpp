// The C interface: windows, ncclPutSignal, ncclSignal and ncclWaitSignal.
#include <cstdint>

#include "nccl_support.h"
#include "support/needs_network.h"

namespace muster {
namespace {

using test::AllRanks;
using test::run_nccl_processes;
using test::run_nccl_threads;

uint32_t element(int from, int to, size_t i) {
  return static_cast<uint32_t>(from * 1000003 + to * 7919) + static_cast<uint32_t>(i * 2654435761U);
}

// Everybody puts a part into everybody's window, between two barriers of signals.
void all_to_all(ncclComm_t comm, int rank, int n, cudaStream_t stream) {
  constexpr size_t kCount = 3000;
  const auto parts = static_cast<size_t>(n);
  void *in = nullptr, *out = nullptr;
  ASSERT_NCCL(ncclMemAlloc(&in, parts * kCount * 4));
  ASSERT_NCCL(ncclMemAlloc(&out, parts * kCount * 4 + 8));
  auto* send = static_cast<uint32_t*>(in);
  auto* recv = static_cast<uint32_t*>(out);
  ncclWindow_t window = nullptr;
  ASSERT_NCCL(ncclCommWindowRegister(comm, out, parts * kCount * 4 + 8, &window, NCCL_WIN_COLL_SYMMETRIC));
  ASSERT_NE(window, nullptr);
  void* user = nullptr;
  EXPECT_NCCL(ncclWinGetUserPtr(comm, window, &user));
  EXPECT_EQ(user, out);
  std::vector<ncclWaitSignalDesc_t> waits;
  for (int r = 0; r < n; ++r) waits.push_back({1, r, 0, 0});
  const auto barrier = [&] {
    EXPECT_NCCL(ncclGroupStart());
    for (int r = 0; r < n; ++r) EXPECT_NCCL(ncclSignal(r, 0, 0, 0, comm, stream));
    EXPECT_NCCL(ncclGroupEnd());
    EXPECT_NCCL(ncclWaitSignal(n, waits.data(), comm, stream));
    if (stream) {
      EXPECT_NCCL(musterStreamSynchronize(stream));
    }
  };
  for (int round = 0; round < 5; ++round) {
    for (int r = 0; r < n; ++r)
      for (size_t i = 0; i < kCount; ++i)
        send[static_cast<size_t>(r) * kCount + i] = element(rank, r, i + static_cast<size_t>(round));
    std::memset(out, 0xa5, parts * kCount * 4 + 8);
    barrier();
    EXPECT_NCCL(ncclGroupStart());
    for (int r = 0; r < n; ++r)
      EXPECT_NCCL(ncclPutSignal(send + static_cast<size_t>(r) * kCount, kCount, ncclUint32, r, window,
                                4 + static_cast<size_t>(rank) * kCount * 4, 9, 2, 0, comm, stream));
    EXPECT_NCCL(ncclGroupEnd());
    std::vector<ncclWaitSignalDesc_t> arrivals;
    for (int r = 0; r < n; ++r) arrivals.push_back({1, r, 9, 2});
    EXPECT_NCCL(ncclWaitSignal(n, arrivals.data(), comm, stream));
    arrivals.clear();  // it was copied
    if (stream) {
      EXPECT_NCCL(musterStreamSynchronize(stream));
    }
    EXPECT_EQ(recv[0], 0xa5a5a5a5u);
    EXPECT_EQ(recv[parts * kCount + 1], 0xa5a5a5a5u);
    for (int r = 0; r < n; ++r)
      for (size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(recv[1 + static_cast<size_t>(r) * kCount + i],
                  element(r, rank, i + static_cast<size_t>(round)))
            << "from " << r << ", " << i;
    barrier();
  }
  EXPECT_NCCL(ncclCommWindowDeregister(comm, window));
  EXPECT_NCCL_FAILS(ncclPutSignal(in, 1, ncclInt8, 0, window, 0, 0, 0, 0, comm, nullptr), ncclInvalidArgument,
                    "not any more");
  EXPECT_NCCL(ncclMemFree(in));
  EXPECT_NCCL(ncclMemFree(out));
}

TEST(NcclWindow, AllToAllByThreads) {
  run_nccl_threads(3, [](ncclComm_t comm, int rank) { all_to_all(comm, rank, 3, nullptr); });
}

TEST(NcclWindow, AllToAllByProcesses) {
  run_nccl_processes(3, [](ncclComm_t comm, int rank) { all_to_all(comm, rank, 3, nullptr); });
}

TEST(NcclWindow, AllToAllOnStreams) {
  run_nccl_threads(2, [](ncclComm_t comm, int rank) {
    cudaStream_t stream = nullptr;
    ASSERT_NCCL(musterStreamCreate(&stream));
    all_to_all(comm, rank, 2, stream);
    EXPECT_NCCL(musterStreamDestroy(stream));
  });
}

TEST(NcclWindow, AreRegisteredInOneGroupByOneThread) {
  AllRanks comms(3);
  std::vector<void*> memory(3);
  std::vector<ncclWindow_t> windows(3);
  EXPECT_NCCL(ncclGroupStart());
  for (size_t r = 0; r < 3; ++r) {
    ASSERT_NCCL(ncclMemAlloc(&memory[r], 4096));
    ASSERT_NCCL(
        ncclCommWindowRegister(comms[static_cast<int>(r)], memory[r], 4096, &windows[r], NCCL_WIN_DEFAULT));
  }
  ASSERT_NCCL(ncclGroupEnd());
  const uint64_t numbers[] = {11, 22, 33};
  EXPECT_NCCL(ncclGroupStart());
  for (int r = 0; r < 3; ++r) {
    ncclWaitSignalDesc_t wait = {1, (r + 2) % 3, 0, 0};
    EXPECT_NCCL(ncclPutSignal(&numbers[r], 1, ncclUint64, (r + 1) % 3, windows[static_cast<size_t>(r)], 8, 0,
                              0, 0, comms[r], nullptr));
    EXPECT_NCCL(ncclWaitSignal(1, &wait, comms[r], nullptr));
  }
  ASSERT_NCCL(ncclGroupEnd());
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(static_cast<uint64_t*>(memory[static_cast<size_t>(r)])[1], numbers[(r + 2) % 3]);
    EXPECT_NCCL(ncclCommWindowDeregister(comms[r], windows[static_cast<size_t>(r)]));
    EXPECT_NCCL(ncclMemFree(memory[static_cast<size_t>(r)]));
  }
}

TEST(NcclWindow, AWaitMayBeListedBeforeThePutInAGroup) {
  run_nccl_processes(2, [](ncclComm_t comm, int rank) {
    void* memory = nullptr;
    ASSERT_NCCL(ncclMemAlloc(&memory, 4096));
    ncclWindow_t window = nullptr;
    ASSERT_NCCL(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    const uint64_t mine = 100 + static_cast<uint64_t>(rank);
    ncclWaitSignalDesc_t wait = {1, 1 - rank, 0, 0};
    EXPECT_NCCL(ncclGroupStart());
    EXPECT_NCCL(ncclWaitSignal(1, &wait, comm, nullptr));
    EXPECT_NCCL(ncclPutSignal(&mine, 1, ncclUint64, 1 - rank, window, 16, 0, 0, 0, comm, nullptr));
    EXPECT_NCCL(ncclGroupEnd());
    EXPECT_EQ(static_cast<uint64_t*>(memory)[2], 101 - static_cast<uint64_t>(rank));
    EXPECT_NCCL(ncclCommWindowDeregister(comm, window));
    ASSERT_NCCL(musterBarrier(comm, nullptr));
    EXPECT_NCCL(ncclMemFree(memory));
  });
}

TEST(NcclWindow, BetweenProcessesOtherMemoryIsRefused) {
  run_nccl_processes(2, [](ncclComm_t comm, int rank) {
    alignas(4096) static char memory[4096];
    void* shared = nullptr;
    ASSERT_NCCL(ncclMemAlloc(&shared, 4096));
    ncclWindow_t window = reinterpret_cast<ncclWindow_t>(&memory);
    EXPECT_NCCL_FAILS(ncclCommWindowRegister(comm, rank == 0 ? memory : shared, 4096, &window, 0),
                      ncclInvalidUsage, "of rank 0 (host ");
    EXPECT_EQ(window, nullptr);
    ASSERT_NCCL(ncclCommWindowRegister(comm, rank == 0 ? nullptr : shared, rank == 0 ? 0 : 4096, &window,
                                       0));  // a rank without memory
    EXPECT_NE(window, nullptr);
    ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    EXPECT_NCCL(ncclCommQueryProperties(comm, &properties));
    EXPECT_TRUE(properties.hostRmaSupport);
    ASSERT_NCCL(musterBarrier(comm, nullptr));
    EXPECT_NCCL(ncclMemFree(shared));
  });
}

TEST(NcclWindow, WrongArgumentsAreRefused) {
  AllRanks a(1), b(1);
  void* p = nullptr;
  ASSERT_NCCL(ncclMemAlloc(&p, 8192));
  ncclWindow_t window = nullptr;
  ASSERT_NCCL(ncclCommWindowRegister(a[0], p, 8192, &window, NCCL_WIN_STRICT_ORDERING));
  ncclWaitSignalDesc_t wait = {1, 0, 0, 0};
  const auto put = [&](ncclComm_t comm, const void* source, size_t count, ncclDataType_t type, ncclWindow_t w,
                       size_t offset, unsigned flags) {
    return ncclPutSignal(source, count, type, 0, w, offset, 0, 0, flags, comm, nullptr);
  };
  EXPECT_NCCL_FAILS(put(nullptr, p, 1, ncclInt8, window, 0, 0), ncclInvalidArgument, "comm is NULL");
  EXPECT_NCCL_FAILS(put(a[0], p, 1, ncclInt8, nullptr, 0, 0), ncclInvalidArgument,
                    "no window of communicator");
  EXPECT_NCCL_FAILS(put(b[0], p, 1, ncclInt8, window, 0, 0), ncclInvalidArgument,
                    "no window of communicator");
  EXPECT_NCCL_FAILS(put(a[0], p, 1, ncclInt8, window, 0, 1), ncclInvalidArgument, "flags 0x1");
  EXPECT_NCCL_FAILS(put(a[0], p, 1, static_cast<ncclDataType_t>(99), window, 0, 0), ncclInvalidArgument,
                    "datatype 99");
  EXPECT_NCCL_FAILS(put(a[0], p, SIZE_MAX / 4, ncclFloat64, window, 0, 0), ncclInvalidArgument,
                    "address space");
  EXPECT_NCCL_FAILS(put(a[0], p, 1025, ncclFloat64, window, 0, 0), ncclInvalidArgument,
                    "8200 bytes at offset 0");
  EXPECT_NCCL_FAILS(put(a[0], p, 1024, ncclFloat64, window, 1, 0), ncclInvalidArgument,
                    "8192 bytes at offset 1");
  EXPECT_NCCL_FAILS(put(a[0], nullptr, 1, ncclFloat64, window, 0, 0), ncclInvalidArgument, "source is null");
  EXPECT_NCCL_FAILS(ncclSignal(0, 0, 0, 2, a[0], nullptr), ncclInvalidArgument, "flags 0x2");
  EXPECT_NCCL_FAILS(ncclSignal(1, 0, 0, 0, a[0], nullptr), ncclInvalidArgument, "peer 1 is not in 0..0");
  EXPECT_NCCL_FAILS(ncclSignal(0, 256, 0, 0, a[0], nullptr), ncclInvalidArgument, "signal 256");
  EXPECT_NCCL_FAILS(ncclSignal(0, 0, 16, 0, a[0], nullptr), ncclInvalidArgument, "context 16");
  EXPECT_NCCL_FAILS(ncclWaitSignal(-1, &wait, a[0], nullptr), ncclInvalidArgument, "nDesc -1");
  EXPECT_NCCL_FAILS(ncclWaitSignal(1, nullptr, a[0], nullptr), ncclInvalidArgument, "signalDescs is NULL");
  EXPECT_NCCL(ncclWaitSignal(0, nullptr, a[0], nullptr));
  EXPECT_NCCL_FAILS(ncclCommWindowDeregister(b[0], window), ncclInvalidArgument, "no window of communicator");
  EXPECT_NCCL(ncclCommWindowDeregister(a[0], window));
  EXPECT_NCCL(ncclMemFree(p));
}

TEST(NcclWindow, GoWithTheirCommunicator) {
  for (int i = 0; i < 3; ++i) {
    AllRanks a(1);
    void* p = nullptr;
    ASSERT_NCCL(ncclMemAlloc(&p, 4096));
    ncclWindow_t window = nullptr;
    ASSERT_NCCL(ncclCommWindowRegister(a[0], p, 4096, &window, 0));
    EXPECT_NCCL(ncclMemFree(p));
  }
}

TEST(NcclWindow, SignalCountsOfAConfigurationHaveLimits) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.numRmaCtx = 16;
  config.numRmaSig = 256;
  run_nccl_threads(
      2,
      [](ncclComm_t comm, int rank) {
        ncclWaitSignalDesc_t wait = {1, 1 - rank, 255, 15};
        EXPECT_NCCL(ncclSignal(1 - rank, 255, 15, 0, comm, nullptr));
        EXPECT_NCCL(ncclWaitSignal(1, &wait, comm, nullptr));
      },
      &config);
  config.numRmaSig = 257;
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  EXPECT_NCCL_FAILS(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "numRmaSig");
}

// Ranks of a host load and store each other's memory; teams say who they are.
void look_at_neighbours(const std::vector<int>& host_of, const std::vector<ncclTeam_t>& lsa, const std::vector<ncclTeam_t>& rail) {
  const int n = static_cast<int>(host_of.size());
  test::run_processes(n, [&](int rank) {
    const auto own = static_cast<size_t>(rank);
    const test::Variable host("NCCL_HOSTID", "host" + std::to_string(host_of[own]));
    const ncclUniqueId id = test::share_id();
    ncclComm_t comm = nullptr;
    ASSERT_NCCL(ncclCommInitRank(&comm, n, id, rank));
    const auto expect = [&](ncclTeam_t t, const ncclTeam_t& e) {
      EXPECT_TRUE(t.nRanks == e.nRanks && t.rank == e.rank && t.stride == e.stride)
          << "{" << t.nRanks << ", " << t.rank << ", " << t.stride << "} of rank " << rank;
    };
    expect(ncclTeamLsa(comm), lsa[own]);
    expect(ncclTeamRail(comm), rail[own]);
    const ncclTeam_t world = ncclTeamWorld(comm), here = ncclTeamLsa(comm);

    void* memory = nullptr;
    ASSERT_NCCL(ncclMemAlloc(&memory, 4096));
    ncclWindow_t window = nullptr;
    ASSERT_NCCL(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    static_cast<int*>(memory)[2] = 100 + rank;
    int sum = 0;
    ASSERT_NCCL(ncclAllReduce(&rank, &sum, 1, ncclInt32, ncclSum, comm, nullptr));  // all have written
    for (int r = 0; r < n; ++r) {
      void *at = memory, *same = nullptr;
      EXPECT_NCCL(ncclGetPeerDevicePointer(window, 8, r, &at));
      if (host_of[static_cast<size_t>(r)] != host_of[own]) {
        EXPECT_EQ(at, nullptr) << r;
        EXPECT_EQ(ncclTeamRankToLsa(comm, world, r), -1);
        continue;
      }
      ASSERT_NE(at, nullptr) << r;
      EXPECT_EQ(*static_cast<int*>(at), 100 + r);
      if (here.nRanks == 1 && r != rank) continue;  // not equally far apart
      EXPECT_NCCL(ncclGetLsaDevicePointer(window, 8, ncclTeamRankToLsa(comm, world, r), &same));
      EXPECT_EQ(same, at);
    }
    ASSERT_NCCL(ncclAllReduce(&rank, &sum, 1, ncclInt32, ncclSum, comm, nullptr));  // all have read
    EXPECT_NCCL(ncclCommWindowDeregister(comm, window));
    EXPECT_NCCL(ncclMemFree(memory));
    EXPECT_NCCL(ncclCommDestroy(comm));
  });
}

TEST(NcclWindows, NeighboursOnOneHost) { look_at_neighbours({0, 0}, {{2, 0, 1}, {2, 1, 1}}, {{1, 0, 2}, {1, 0, 2}}); }
TEST(NcclWindows, NeighboursOnTwoHosts) {
  NEED_NETWORK();
  look_at_neighbours({0, 0, 1, 1}, {{2, 0, 1}, {2, 1, 1}, {2, 0, 1}, {2, 1, 1}}, {{2, 0, 2}, {2, 0, 2}, {2, 1, 2}, {2, 1, 2}});
}
TEST(NcclWindows, NeighboursThatTakeTurns) {
  NEED_NETWORK();
  look_at_neighbours({0, 1, 0, 1}, {{2, 0, 2}, {2, 0, 2}, {2, 1, 2}, {2, 1, 2}}, {{2, 0, 1}, {2, 1, 1}, {2, 0, 1}, {2, 1, 1}});
}
TEST(NcclWindows, NeighboursOnUnequalHosts) {
  NEED_NETWORK();
  look_at_neighbours({0, 0, 1, 0}, {{1, 0, 1}, {1, 0, 1}, {1, 0, 1}, {1, 0, 1}}, {{1, 0, 1}, {1, 0, 1}, {1, 0, 1}, {1, 0, 1}});
}

}  // namespace
}  // namespace muster
