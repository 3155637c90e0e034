// The C interface: operations, registered memory, options, and what serves GPU kernels.
#include <atomic>
#include <cstdlib>

#include "base/lasting_memory.h"
#include "nccl_support.h"
#include "support/outcome.h"

namespace muster {
namespace {

using test::AllRanks;
using test::Guarded;
using test::run_nccl_threads;
using test::Variable;
using testing::HasSubstr;

// --- operations ---

TEST(NcclOperation, EachRankMultipliesByItsScalar) {
  for (const auto residence : {ncclScalarHostImmediate, ncclScalarDevice})
    run_nccl_threads(3, [&](ncclComm_t comm, int rank) {
      double scalar = rank + 1;
      ncclRedOp_t op;
      ASSERT_NCCL(ncclRedOpCreatePreMulSum(&op, &scalar, ncclDouble, residence, comm));
      EXPECT_GE(op, ncclNumOps);
      if (residence == ncclScalarHostImmediate) scalar = -99;  // was read
      const double in[2] = {10, 20};
      double out[2] = {-1, -1};
      ASSERT_NCCL(ncclAllReduce(in, out, 2, ncclDouble, op, comm, nullptr));
      EXPECT_EQ(out[0], 60);
      EXPECT_EQ(out[1], 120);
      ASSERT_NCCL(ncclReduce(in, out, 2, ncclDouble, op, 1, comm, nullptr));
      const double all[6] = {1, 2, 3, 4, 5, 6};
      double one[2] = {-1, -1};
      ASSERT_NCCL(ncclReduceScatter(all, one, 2, ncclDouble, op, comm, nullptr));
      EXPECT_EQ(one[0], 6 * (2 * rank + 1));
      EXPECT_EQ(one[1], 6 * (2 * rank + 2));
      EXPECT_NCCL(ncclRedOpDestroy(op, comm));
    });
}

// A "device" scalar is what it is when the call runs: on a stream, what calls before it have made of it.
TEST(NcclOperation, ADeviceScalarIsReadWhenTheCallRuns) {
  run_nccl_threads(2, [](ncclComm_t comm, int rank) {
    cudaStream_t stream = nullptr;
    ASSERT_NCCL(musterStreamCreate(&stream));
    float scalar = -5;
    ncclRedOp_t op;
    ASSERT_NCCL(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarDevice, comm));
    const float two = 2, three = 3;
    float out = -1;
    ASSERT_NCCL(ncclAllReduce(&two, &scalar, 1, ncclFloat, ncclSum, comm, stream));  // makes it 4
    ASSERT_NCCL(ncclAllReduce(&three, &out, 1, ncclFloat, op, comm, stream));
    EXPECT_NCCL(ncclRedOpDestroy(op, comm));  // as soon as the last call has returned
    EXPECT_NCCL(musterStreamSynchronize(stream));
    EXPECT_EQ(out, 24) << rank;
    // In a group: when that ends.
    ASSERT_NCCL(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarDevice, comm));
    ASSERT_NCCL(ncclGroupStart());
    ASSERT_NCCL(ncclAllReduce(&three, &out, 1, ncclFloat, op, comm, nullptr));
    scalar = 10;
    ASSERT_NCCL(ncclGroupEnd());
    EXPECT_EQ(out, 60);
    EXPECT_NCCL(ncclRedOpDestroy(op, comm));
    EXPECT_NCCL(musterStreamDestroy(stream));
  });
}

TEST(NcclOperation, OnesThatAreNoneAreRefused) {
  AllRanks a(1), b(1);
  float scalar = 2, x = 1, y = -1;
  ncclRedOp_t op;
  for (const auto residence : {ncclScalarHostImmediate, ncclScalarDevice}) {
    ASSERT_NCCL(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, residence, a[0]));
    double d = 1;
    EXPECT_NCCL_FAILS(ncclAllReduce(&d, &d, 1, ncclDouble, op, a[0], nullptr), ncclInvalidArgument,
                      "one type");
    EXPECT_NCCL_FAILS(ncclAllReduce(&x, &y, 1, ncclFloat, op, b[0], nullptr), ncclInvalidArgument,
                      "not destroyed");
    EXPECT_NCCL_FAILS(ncclRedOpDestroy(op, b[0]), ncclInvalidArgument, "was not made for communicator");
    EXPECT_NCCL(ncclAllReduce(&x, &y, 1, ncclFloat, op, a[0], nullptr));
    EXPECT_EQ(y, 2);
    EXPECT_NCCL(ncclRedOpDestroy(op, a[0]));
    EXPECT_NCCL_FAILS(ncclRedOpDestroy(op, a[0]), ncclInvalidArgument, "was not made for communicator");
    EXPECT_NCCL_FAILS(ncclAllReduce(&x, &y, 1, ncclFloat, op, a[0], nullptr), ncclInvalidArgument,
                      "not destroyed");
  }
  // A new one isn't taken for an old one.
  ncclRedOp_t next;
  ASSERT_NCCL(ncclRedOpCreatePreMulSum(&next, &scalar, ncclFloat, ncclScalarHostImmediate, a[0]));
  EXPECT_NE(next, op);
  EXPECT_NCCL_FAILS(ncclRedOpDestroy(ncclSum, a[0]), ncclInvalidArgument, "built in");
  EXPECT_NCCL_FAILS(ncclRedOpCreatePreMulSum(nullptr, &scalar, ncclFloat, ncclScalarHostImmediate, a[0]),
                    ncclInvalidArgument, "op is NULL");
  EXPECT_NCCL_FAILS(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat, ncclScalarHostImmediate, a[0]),
                    ncclInvalidArgument, "scalar");
  EXPECT_NCCL_FAILS(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat, ncclScalarDevice, a[0]),
                    ncclInvalidArgument, "scalar");
  EXPECT_NCCL_FAILS(
      ncclRedOpCreatePreMulSum(&op, &scalar, static_cast<ncclDataType_t>(12), ncclScalarDevice, a[0]),
      ncclInvalidArgument, "12 is not an element type");
  EXPECT_NCCL_FAILS(
      ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, static_cast<ncclScalarResidence_t>(2), a[0]),
      ncclInvalidArgument, "residence 2");
}

TEST(NcclOperation, ExtensionsAreBitwiseAndLogical) {
  run_nccl_threads(3, [](ncclComm_t comm, int rank) {
    const int in[3] = {0b0110, 0b0011, 0b1010};
    const auto reduce = [&](ncclRedOp_t op) {
      int out = -1;
      EXPECT_NCCL(ncclAllReduce(&in[rank], &out, 1, ncclInt, op, comm, nullptr));
      return out;
    };
    EXPECT_EQ(reduce(musterBitAnd), 0b0010);
    EXPECT_EQ(reduce(musterBitOr), 0b1111);
    EXPECT_EQ(reduce(musterBitXor), 0b1111);
    const float truth[3] = {0, 2, -1};
    const auto decide = [&](ncclRedOp_t op) {
      float out = -1;
      EXPECT_NCCL(ncclAllReduce(&truth[rank], &out, 1, ncclFloat, op, comm, nullptr));
      return out;
    };
    EXPECT_EQ(decide(musterLogicalAnd), 0);
    EXPECT_EQ(decide(musterLogicalOr), 1);
    EXPECT_EQ(decide(musterLogicalXor), 0);
    float x = 1;
    EXPECT_NCCL_FAILS(ncclAllReduce(&x, &x, 1, ncclFloat, musterBitAnd, comm, nullptr), ncclInvalidArgument,
                      "integer types");
    EXPECT_NCCL_FAILS(
        ncclAllReduce(&x, &x, 1, ncclFloat, static_cast<ncclRedOp_t>(musterLogicalXor + 1), comm, nullptr),
        ncclInvalidArgument, "is none");
  });
}

// --- a count per rank ---

TEST(NcclUneven, EachRankHasItsCount) {
  for (const bool streamed : {false, true})
    run_nccl_threads(3, [&](ncclComm_t comm, int rank) {
      cudaStream_t stream = nullptr;
      if (streamed) {
        ASSERT_NCCL(musterStreamCreate(&stream));
      }
      const auto wait = [&] { EXPECT_NCCL(musterStreamSynchronize(stream)); };
      const auto me = static_cast<size_t>(rank);
      const size_t counts[3] = {2, 0, 3};
      {
        const std::vector<int> mine(counts[rank], 10 + rank);
        Guarded<int> packed(5), spread(8);
        ASSERT_NCCL(musterAllGatherV(mine.data(), counts[rank], packed.data(), counts, nullptr, ncclInt, comm,
                                     stream));
        wait();
        const int want[] = {10, 10, 12, 12, 12};
        for (size_t i = 0; i < 5; ++i) EXPECT_EQ(packed[i], want[i]) << i;
        EXPECT_TRUE(packed.is_intact());
        const size_t displacements[3] = {5, 4, 0};
        ASSERT_NCCL(musterAllGatherV(mine.data(), counts[rank], spread.data(), counts, displacements, ncclInt,
                                     comm, stream));
        wait();
        for (const size_t i : {0, 1, 2}) EXPECT_EQ(spread[i], 12) << i;
        for (const size_t i : {5, 6}) EXPECT_EQ(spread[i], 10) << i;
        EXPECT_TRUE(spread.is_intact());
      }
      {
        const float in[5] = {1, 2, 3, 4, 5};
        Guarded<float> out(counts[rank]);
        ASSERT_NCCL(musterReduceScatterV(in, out.data(), counts, ncclFloat, ncclSum, comm, stream));
        wait();
        for (size_t i = 0; i < counts[rank]; ++i) EXPECT_EQ(out[i], 3 * in[(rank == 2 ? 2 : 0) + i]);
        EXPECT_TRUE(out.is_intact());
      }
      {
        // Rank r sends r + 1 elements to each, but none to rank 1.
        const size_t to[3] = {me + 1, 0, me + 1}, none[3] = {0, 0, 0}, from[3] = {1, 2, 3};
        const std::vector<int> in(2 * (me + 1), rank);
        Guarded<int> out(rank == 1 ? 0 : 6);
        ASSERT_NCCL(musterAlltoAllV(in.data(), to, nullptr, out.data(), rank == 1 ? none : from, nullptr,
                                    ncclInt, comm, stream));
        wait();
        const int want[] = {0, 1, 1, 2, 2, 2};
        for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], want[i]) << i;
        EXPECT_TRUE(out.is_intact());
      }
      ASSERT_NCCL(musterBarrier(comm, stream));
      wait();
      float x = 1;
      EXPECT_NCCL_FAILS(musterAllGatherV(&x, 1, &x, nullptr, nullptr, ncclFloat, comm, stream),
                        ncclInvalidArgument, "recvcounts is NULL");
      EXPECT_NCCL_FAILS(musterAlltoAllV(&x, nullptr, nullptr, &x, counts, nullptr, ncclFloat, comm, stream),
                        ncclInvalidArgument, "sendcounts is NULL");
      if (streamed) {
        EXPECT_NCCL(musterStreamDestroy(stream));
      }
    });
}

TEST(NcclUneven, ABarrierWaitsForAllRanks) {
  std::atomic<int> entered{0};
  run_nccl_threads(4, [&](ncclComm_t comm, int rank) {
    for (int round = 1; round <= 50; ++round) {
      if (rank == round % 4) std::this_thread::yield();
      ++entered;
      ASSERT_NCCL(musterBarrier(comm, nullptr));
      EXPECT_GE(entered.load(), 4 * round);
    }
  });
}

// --- memory ---

TEST(NcclMemory, IsAllocatedAndFreed) {
  void* p = nullptr;
  ASSERT_NCCL(ncclMemAlloc(&p, 100));
  std::memset(p, 1, 100);
  EXPECT_NCCL(ncclMemFree(p));
  EXPECT_NCCL_FAILS(ncclMemFree(p), ncclInvalidArgument, "freed before");
  EXPECT_NCCL(ncclMemFree(nullptr));
  int local = 0;
  EXPECT_NCCL_FAILS(ncclMemFree(&local), ncclInvalidArgument, "not the start");
  EXPECT_NE(ncclMemAlloc(&p, SIZE_MAX), ncclSuccess);
  EXPECT_EQ(p, nullptr);
  ASSERT_NCCL(ncclMemAlloc(&p, 0));
  EXPECT_NE(p, nullptr);
  EXPECT_NCCL(ncclMemFree(p));
}

TEST(NcclMemory, IsRegisteredAndDeregistered) {
  AllRanks a(1), b(1);
  std::vector<float> any(100);
  void* handle = nullptr;
  ASSERT_NCCL(ncclCommRegister(a[0], any.data(), 400, &handle));
  ASSERT_NE(handle, nullptr);
  EXPECT_NCCL_FAILS(ncclCommDeregister(b[0], handle), ncclInvalidArgument,
                    "no registered range of communicator");
  EXPECT_NCCL(ncclCommDeregister(a[0], handle));
  EXPECT_NCCL_FAILS(ncclCommDeregister(a[0], handle), ncclInvalidArgument, "not any more");
  EXPECT_NCCL_FAILS(ncclCommDeregister(a[0], nullptr), ncclInvalidArgument, "no registered range");
  EXPECT_NCCL_FAILS(ncclCommDeregister(a[0], any.data()), ncclInvalidArgument, "no registered range");
  EXPECT_NCCL_FAILS(ncclCommRegister(a[0], nullptr, 4, &handle), ncclInvalidArgument, "buff is NULL");
  EXPECT_NCCL_FAILS(ncclCommRegister(a[0], any.data(), 0, &handle), ncclInvalidArgument, "size is 0");
  EXPECT_NCCL_FAILS(ncclCommRegister(a[0], any.data(), SIZE_MAX, &handle), ncclInvalidArgument,
                    "address space");
  EXPECT_NCCL_FAILS(ncclCommRegister(a[0], any.data(), 4, nullptr), ncclInvalidArgument, "handle is NULL");
  ASSERT_NCCL(ncclCommRegister(a[0], any.data(), 400, &handle));  // goes with the communicator
}

// RDMA sends in place what is known to last.
TEST(NcclMemory, WhatIsRegisteredLastsUntilItIsDeregisteredOrItsCommunicatorEnds) {
  std::vector<float> any(100);
  const auto lasts = [&] { return LastingMemory::of_process().find(any.data(), 400).life != 0; };
  void* handle = nullptr;
  {
    AllRanks a(1);
    ASSERT_NCCL(ncclCommRegister(a[0], any.data(), 400, &handle));
    EXPECT_TRUE(lasts());
    EXPECT_NCCL(ncclCommDeregister(a[0], handle));
    EXPECT_FALSE(lasts());
    ASSERT_NCCL(ncclCommRegister(a[0], any.data(), 400, &handle));
    EXPECT_TRUE(lasts());
  }
  EXPECT_FALSE(lasts());
  ncclUniqueId id;
  ncclComm_t aborted = nullptr;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ASSERT_NCCL(ncclCommInitRank(&aborted, 1, id, 0));
  ASSERT_NCCL(ncclCommRegister(aborted, any.data(), 400, &handle));
  EXPECT_NCCL(ncclCommAbort(aborted));
  EXPECT_FALSE(lasts());
  void* page = nullptr;
  ASSERT_EQ(posix_memalign(&page, 4096, 4096), 0);
  {
    AllRanks a(1);
    ncclWindow_t window = nullptr;
    ASSERT_NCCL(ncclCommWindowRegister(a[0], page, 4096, &window, 0));
    EXPECT_NE(LastingMemory::of_process().find(page, 4096).life, 0u);
    EXPECT_NCCL(ncclCommWindowDeregister(a[0], window));
    EXPECT_EQ(LastingMemory::of_process().find(page, 4096).life, 0u);
  }
  free(page);
  const Variable off("NCCL_LOCAL_REGISTER", "0");
  AllRanks a(1);
  ASSERT_NCCL(ncclCommRegister(a[0], any.data(), 400, &handle));
  EXPECT_FALSE(lasts());
  EXPECT_NCCL(ncclCommDeregister(a[0], handle));
}

TEST(NcclMemory, WindowsAreOfWholePages) {
  AllRanks a(1), b(1);
  void* p = nullptr;
  ASSERT_NCCL(ncclMemAlloc(&p, 8192));
  ncclWindow_t window = nullptr;
  ASSERT_NCCL(
      ncclCommWindowRegister(a[0], p, 8192, &window, NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING));
  ASSERT_NE(window, nullptr);
  void* user = nullptr;
  EXPECT_NCCL(ncclWinGetUserPtr(a[0], window, &user));
  EXPECT_EQ(user, p);
  EXPECT_NCCL_FAILS(ncclGetPeerDevicePointer(window, 0, 1, &user), ncclInvalidArgument, "rank 1 is not in 0..0");
  EXPECT_NCCL_FAILS(ncclGetPeerDevicePointer(window, 8193, 0, &user), ncclInvalidArgument, "beyond the 8192 bytes");
  EXPECT_NCCL_FAILS(ncclGetPeerDevicePointer(window, 0, 0, nullptr), ncclInvalidArgument, "outPtr is NULL");
  EXPECT_NCCL_FAILS(ncclGetPeerDevicePointer(nullptr, 0, 0, &user), ncclInvalidArgument, "is no window");
  EXPECT_NCCL_FAILS(ncclGetLsaDevicePointer(window, 0, -1, &user), ncclInvalidArgument, "lsaRank -1 is not in 0..0");
  EXPECT_NCCL_FAILS(ncclWinGetUserPtr(b[0], window, &user), ncclInvalidArgument, "no window of communicator");
  EXPECT_NCCL_FAILS(ncclWinGetUserPtr(a[0], nullptr, &user), ncclInvalidArgument, "no window");
  EXPECT_NCCL_FAILS(ncclWinGetUserPtr(a[0], window, nullptr), ncclInvalidArgument, "outUserPtr is NULL");
  EXPECT_NCCL(ncclCommWindowDeregister(a[0], window));
  EXPECT_NCCL_FAILS(ncclCommWindowDeregister(a[0], window), ncclInvalidArgument, "not any more");
  EXPECT_NCCL_FAILS(ncclGetPeerDevicePointer(window, 0, 0, &user), ncclInvalidArgument, "no window any more");
  EXPECT_NCCL_FAILS(ncclCommWindowRegister(a[0], static_cast<char*>(p) + 64, 64, &window, 0),
                    ncclInvalidArgument, "NCCL_WIN_REQUIRED_ALIGNMENT");
  EXPECT_NCCL_FAILS(ncclCommWindowRegister(a[0], p, 64, &window, 0x100), ncclInvalidArgument, "winFlags");
  EXPECT_NCCL_FAILS(ncclCommWindowRegister(a[0], p, 64, nullptr, 0), ncclInvalidArgument, "win is NULL");
  EXPECT_NCCL(ncclMemFree(p));
}

// --- options ---

TEST(NcclParam, IsReadAsItIsSetNow) {
  ncclParamHandle_t handle = nullptr;
  ASSERT_NCCL(ncclParamBind(&handle, "MUSTER_CHANNELS"));
  const Variable channels("MUSTER_CHANNELS", "7");
  int8_t i8 = -1;
  int16_t i16 = -1;
  int32_t i32 = -1;
  int64_t i64 = -1;
  uint8_t u8 = 0;
  uint16_t u16 = 0;
  uint32_t u32 = 0;
  uint64_t u64 = 0;
  EXPECT_NCCL(ncclParamGetI8(handle, &i8));
  EXPECT_NCCL(ncclParamGetI16(handle, &i16));
  EXPECT_NCCL(ncclParamGetI32(handle, &i32));
  EXPECT_NCCL(ncclParamGetI64(handle, &i64));
  EXPECT_NCCL(ncclParamGetU8(handle, &u8));
  EXPECT_NCCL(ncclParamGetU16(handle, &u16));
  EXPECT_NCCL(ncclParamGetU32(handle, &u32));
  EXPECT_NCCL(ncclParamGetU64(handle, &u64));
  EXPECT_EQ(i8, 7);
  EXPECT_EQ(i16, 7);
  EXPECT_EQ(i32, 7);
  EXPECT_EQ(i64, 7);
  EXPECT_EQ(u8, 7u);
  EXPECT_EQ(u16, 7u);
  EXPECT_EQ(u32, 7u);
  EXPECT_EQ(u64, 7u);
  const char* text = nullptr;
  EXPECT_NCCL(ncclParamGetStr(handle, &text));
  EXPECT_STREQ(text, "7");
  int64_t bytes = -1;
  int length = -1;
  EXPECT_NCCL(ncclParamGet(handle, &bytes, sizeof bytes, &length));
  EXPECT_EQ(bytes, 7);
  EXPECT_EQ(length, 8);
  EXPECT_NCCL_FAILS(ncclParamGet(handle, &bytes, 4, &length), ncclInvalidArgument, "maxLen is 4");
  const Variable more("MUSTER_CHANNELS", "300");
  EXPECT_NCCL_FAILS(ncclParamGetI8(handle, &i8), ncclInvalidArgument, "-128 to 127");
  EXPECT_NCCL(ncclParamGetI16(handle, &i16));
  EXPECT_EQ(i16, 300);
}

TEST(NcclParam, TextsAreNoNumbersAndUnknownKeysNone) {
  const Variable family("NCCL_SOCKET_FAMILY", "AF_INET6");
  const char* value = nullptr;
  int length = -1;
  ASSERT_NCCL(ncclParamGetParameter("NCCL_SOCKET_FAMILY", &value, &length));
  EXPECT_STREQ(value, "AF_INET6");
  EXPECT_EQ(length, 8);
  ncclParamHandle_t handle = nullptr;
  ASSERT_NCCL(ncclParamBind(&handle, "NCCL_SOCKET_FAMILY"));
  int32_t n = 0;
  EXPECT_NCCL_FAILS(ncclParamGetI32(handle, &n), ncclInvalidArgument, "no whole number");
  EXPECT_NCCL_FAILS(ncclParamBind(&handle, "NCCL_NO_SUCH"), ncclInvalidArgument, "NCCL_NO_SUCH");
  EXPECT_NCCL_FAILS(ncclParamGetI32(nullptr, &n), ncclInvalidArgument, "no handle");
  EXPECT_NCCL_FAILS(ncclParamGetI32(reinterpret_cast<ncclParamHandle_t>(&n), &n), ncclInvalidArgument,
                    "no handle");
  EXPECT_NCCL_FAILS(ncclParamGetParameter("MUSTER_JOB_KEY", &value, &length), ncclInvalidUsage, "secret");
  const char** keys = nullptr;
  ASSERT_NCCL(ncclParamGetAllParameterKeys(&keys, &length));
  const std::vector<std::string> all(keys, keys + length);
  EXPECT_THAT(all, testing::IsSupersetOf({"MUSTER_ALGO", "NCCL_DEBUG", "NCCL_SOCKET_IFNAME"}));
  for (const std::string& key : all) EXPECT_NCCL(ncclParamBind(&handle, key.c_str())) << key;
  ncclParamDumpAll();
}

// --- GPU kernels that communicate ---

TEST(NcclDevice, ResourcesOfKernelsAreRefused) {
  AllRanks ranks(2);
  const char* reason = "there are none on host memory";
  EXPECT_NCCL_FAILS(ncclDevCommCreate(ranks[0], nullptr, nullptr), ncclInvalidUsage, reason);
  EXPECT_NCCL_FAILS(ncclDevCommDestroy(ranks[0], nullptr), ncclInvalidUsage, reason);
  EXPECT_NCCL_FAILS(ncclLsaBarrierCreateRequirement({2, 0, 1}, 1, nullptr, nullptr), ncclInvalidUsage,
                    reason);
  EXPECT_NCCL_FAILS(ncclGinBarrierCreateRequirement(ranks[0], {2, 0, 1}, 1, nullptr, nullptr),
                    ncclInvalidUsage, reason);
  EXPECT_NCCL_FAILS(ncclLLA2ACreateRequirement(1, 1, nullptr, nullptr), ncclInvalidUsage, reason);
  EXPECT_EQ(ncclLLA2ACalcSlots(8, 8), 0);
}

TEST(NcclDevice, TeamsAreSetsOfRanks) {
  AllRanks ranks(3);
  const auto expect = [](ncclTeam_t t, int n, int rank, int stride) {
    EXPECT_EQ(t.nRanks, n);
    EXPECT_EQ(t.rank, rank);
    EXPECT_EQ(t.stride, stride);
  };
  expect(ncclTeamWorld(ranks[1]), 3, 1, 1);
  expect(ncclTeamLsa(ranks[1]), 3, 1, 1);
  expect(ncclTeamRail(ranks[1]), 1, 0, 3);
  expect(ncclTeamWorld(nullptr), 0, 0, 0);
  EXPECT_EQ(ncclTeamRankToWorld(ranks[1], ncclTeamWorld(ranks[1]), 2), 2);
  EXPECT_EQ(ncclTeamRankToWorld(ranks[1], ncclTeamRail(ranks[1]), 0), 1);
  EXPECT_EQ(ncclTeamRankToLsa(ranks[2], ncclTeamLsa(ranks[2]), 0), 0);
  EXPECT_EQ(ncclTeamRankToWorld(ranks[1], ncclTeamWorld(ranks[1]), 3), -1);
}

// Programs that try in a loop don't fill the log.
TEST(NcclErrors, OfThoseThatDifferInNumbersTenAreLogged) {
  const test::AllRanks comms(1);
  const auto fail = [&](int op, const char* what) {
    float x = 0;
    EXPECT_NCCL_FAILS(ncclAllReduce(&x, &x, 1, ncclFloat, static_cast<ncclRedOp_t>(op), comms[0], nullptr),
                      ncclInvalidArgument, what);
  };
  testing::internal::CaptureStderr();
  for (int i = 0; i < 30; ++i) fail(7000010 + i, std::to_string(7000010 + i).c_str());
  void* p = nullptr;
  EXPECT_NCCL_FAILS(ncclCommDeregister(comms[0], &p), ncclInvalidArgument, "registered range");
  const std::string log = testing::internal::GetCapturedStderr();
  for (int i = 0; i < 30; ++i)
    EXPECT_EQ(log.find(std::to_string(7000010 + i)) != log.npos, i < 10) << log;
  EXPECT_THAT(log, testing::AllOf(testing::HasSubstr("the tenth like this"), testing::HasSubstr("registered range")));
}

}  // namespace
}  // namespace muster
