// The C interface: communicators made, derived, ended; blocking and not; as threads and processes.
#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "nccl_support.h"

namespace muster {
namespace {

using test::AllRanks;
using test::run_nccl_processes;
using test::run_nccl_threads;
using testing::HasSubstr;

// The ranks' sum of 1 << (rank in the parent) says who is in the communicator.
void expect_members(ncclComm_t comm, int parent_rank, int members, int rank) {
  int in = 1 << parent_rank, out = -1, got_rank = -1, count = -1;
  ASSERT_NCCL(ncclAllReduce(&in, &out, 1, ncclInt, ncclSum, comm, nullptr));
  EXPECT_EQ(out, members);
  EXPECT_NCCL(ncclCommUserRank(comm, &got_rank));
  EXPECT_NCCL(ncclCommCount(comm, &count));
  EXPECT_EQ(got_rank, rank);
  EXPECT_EQ(count, __builtin_popcount(static_cast<unsigned>(members)));
}

void check_split(ncclComm_t comm, int rank) {
  ncclComm_t child = nullptr;
  // Two colors; keys turn the order round.
  ASSERT_NCCL(ncclCommSplit(comm, rank % 2, -rank, &child, nullptr));
  expect_members(child, rank, rank % 2 ? 0b1010 : 0b0101, rank < 2 ? 1 : 0);
  EXPECT_NCCL(ncclCommDestroy(child));
  // Equal keys: by rank.
  ASSERT_NCCL(ncclCommSplit(comm, 7, 3, &child, nullptr));
  expect_members(child, rank, 0b1111, rank);
  // A child of a child, and a rank without a color.
  ncclComm_t grandchild = child;
  ASSERT_NCCL(ncclCommSplit(child, rank == 3 ? NCCL_SPLIT_NOCOLOR : 0, 0, &grandchild, nullptr));
  if (rank == 3)
    EXPECT_EQ(grandchild, nullptr);
  else
    expect_members(grandchild, rank, 0b0111, rank);
  EXPECT_NCCL(ncclCommDestroy(child));  // before its child
  if (rank != 3) expect_members(grandchild, rank, 0b0111, rank);
  EXPECT_NCCL(ncclCommDestroy(grandchild));
  expect_members(comm, rank, 0b1111, rank);
}

TEST(NcclLife, SplitsByColorAndKey) { run_nccl_threads(4, check_split); }
TEST(NcclLife, SplitsBetweenProcesses) { run_nccl_processes(4, check_split); }

TEST(NcclLife, SplitsInAGroupOfOneThread) {
  AllRanks ranks(4);
  ncclComm_t row[4] = {}, column[4] = {};
  ASSERT_NCCL(ncclGroupStart());
  for (int r = 0; r < 4; ++r) {
    EXPECT_NCCL(ncclCommSplit(ranks[r], r / 2, 0, &row[r], nullptr));
    EXPECT_NCCL(ncclCommSplit(ranks[r], r % 2, 0, &column[r], nullptr));
  }
  ASSERT_NCCL(ncclGroupEnd());
  int in[4] = {1, 2, 4, 8}, out[4] = {};
  ASSERT_NCCL(ncclGroupStart());
  for (int r = 0; r < 4; ++r)
    EXPECT_NCCL(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, row[r], nullptr));
  ASSERT_NCCL(ncclGroupEnd());
  EXPECT_THAT(out, testing::ElementsAre(3, 3, 12, 12));
  ASSERT_NCCL(ncclGroupStart());
  for (int r = 0; r < 4; ++r)
    EXPECT_NCCL(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, column[r], nullptr));
  ASSERT_NCCL(ncclGroupEnd());
  EXPECT_THAT(out, testing::ElementsAre(5, 10, 5, 10));
  for (int r = 0; r < 4; ++r) {
    EXPECT_NCCL(ncclCommDestroy(row[r]));
    EXPECT_NCCL(ncclCommDestroy(column[r]));
  }
}

TEST(NcclLife, ADerivedCommunicatorTakesItsConfiguration) {
  run_nccl_threads(2, [](ncclComm_t comm, int) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.commName = "pipeline";
    ncclComm_t child = nullptr;
    ASSERT_NCCL(ncclCommSplit(comm, 0, 0, &child, &config));
    float x = 0;
    EXPECT_EQ(ncclBroadcast(&x, &x, 1, ncclFloat, 0, child, reinterpret_cast<cudaStream_t>(&x)),
              ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclFloat, static_cast<ncclRedOp_t>(99), child, nullptr),
              ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(child), HasSubstr("pipeline"));
    EXPECT_NCCL(ncclCommDestroy(child));
    config.splitShare = 9;
    EXPECT_NCCL_FAILS(ncclCommSplit(comm, 0, 0, &child, &config), ncclInvalidArgument, "splitShare is 9");
    EXPECT_EQ(child, nullptr);
  });
}

TEST(NcclLife, ShrinksWithoutTheExcluded) {
  for (const int flags : {NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT})
    run_nccl_threads(3, [&](ncclComm_t comm, int rank) {
      if (rank == 1) {
        // Leaves the parent only after the others have made theirs: its threads of one process can't tell it
        // otherwise.
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return;
      }
      int excluded = 1;
      ncclComm_t rest = nullptr;
      ASSERT_NCCL(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, flags));
      expect_members(rest, rank, 0b101, rank / 2);
      EXPECT_NCCL(ncclCommDestroy(rest));
    });
}

TEST(NcclLife, ShrinksAfterADeath) {
  run_nccl_processes(3,
                     [](ncclComm_t comm, int rank) {
                       float x = 1, y = 0;
                       ASSERT_NCCL(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, comm, nullptr));
                       if (rank == 2) kill(getpid(), SIGKILL);
                       EXPECT_EQ(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, comm, nullptr),
                                 ncclRemoteError);
                       EXPECT_THAT(ncclGetLastError(comm), HasSubstr("rank 2"));
                       int excluded = 2;
                       ncclComm_t rest = nullptr;
                       ASSERT_NCCL(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT));
                       expect_members(rest, rank, 0b011, rank);
                       EXPECT_NCCL(ncclCommDestroy(rest));
                     },
                     {.killed = {2}});
}

TEST(NcclLife, ShrinkAndGrowRefuseWhatCannotBe) {
  AllRanks ranks(1);
  ncclComm_t comm = nullptr;
  int excluded = 0;
  EXPECT_NCCL_FAILS(ncclCommShrink(ranks[0], &excluded, 1, &comm, nullptr, 5), ncclInvalidArgument,
                    "shrinkFlags 5");
  EXPECT_NCCL_FAILS(ncclCommShrink(ranks[0], &excluded, 0, &comm, nullptr, 0), ncclInvalidArgument,
                    "excludeRanksCount 0");
  EXPECT_NCCL_FAILS(ncclCommShrink(ranks[0], nullptr, 1, &comm, nullptr, 0), ncclInvalidArgument,
                    "excludeRanksList");
  EXPECT_NCCL_FAILS(ncclCommShrink(ranks[0], &excluded, 1, nullptr, nullptr, 0), ncclInvalidArgument,
                    "newcomm is NULL");
  EXPECT_NCCL_FAILS(ncclCommGrow(nullptr, 2, nullptr, 1, &comm, nullptr), ncclInvalidArgument, "uniqueId");
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  EXPECT_NCCL_FAILS(ncclCommGrow(ranks[0], 2, &id, 0, &comm, nullptr), ncclInvalidArgument, "must pass -1");
  EXPECT_NCCL_FAILS(ncclCommInitRankScalable(&comm, 2, 0, 3, &id, nullptr), ncclInvalidArgument, "nId 3");
  EXPECT_NCCL_FAILS(ncclCommInitRankScalable(&comm, 2, 0, 1, nullptr, nullptr), ncclInvalidArgument,
                    "commIds");
  EXPECT_NCCL_FAILS(ncclCommRevoke(ranks[0], 1), ncclInvalidArgument, "revokeFlags 1");
  EXPECT_NCCL_FAILS(ncclCommSuspend(ranks[0], 0), ncclInvalidArgument, "NCCL_SUSPEND_MEM");
  EXPECT_NCCL_FAILS(ncclCommSplit(ranks[0], -2, 0, &comm, nullptr), ncclInvalidArgument, "color");
}

TEST(NcclLife, GrowsByNewRanks) {
  ncclComm_t parent[2] = {};
  ASSERT_NCCL(ncclCommInitAll(parent, 2, nullptr));
  ncclUniqueId id;
  ASSERT_NCCL(ncclCommGetUniqueId(parent[1], &id));
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      ncclComm_t grown = nullptr;
      if (r < 2)
        ASSERT_NCCL(ncclCommGrow(parent[r], 3, r == 1 ? &id : nullptr, -1, &grown, nullptr));
      else
        ASSERT_NCCL(ncclCommGrow(nullptr, 3, &id, 2, &grown, nullptr));
      expect_members(grown, r, 0b111, r);
      EXPECT_NCCL(ncclCommDestroy(grown));
    });
  for (std::thread& t : threads) t.join();
  for (const ncclComm_t c : parent) EXPECT_NCCL(ncclCommDestroy(c));
}

TEST(NcclLife, ManyIdsMakeOneCommunicator) {
  ncclUniqueId ids[2];
  for (ncclUniqueId& id : ids) ASSERT_NCCL(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r)
    threads.emplace_back([&, r] {
      ncclComm_t comm = nullptr;
      ASSERT_NCCL(ncclCommInitRankScalable(&comm, 4, r, 2, ids, nullptr));
      expect_members(comm, r, 0b1111, r);
      EXPECT_NCCL(ncclCommDestroy(comm));
    });
  for (std::thread& t : threads) t.join();
}

TEST(NcclLife, FinalizeComesOnceAndAllowsOnlyDestroying) {
  run_nccl_threads(2, [](ncclComm_t comm, int) {
    float x = 1;
    EXPECT_NCCL(ncclCommFinalize(comm));
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
    EXPECT_NE(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, nullptr), ncclSuccess);
  });
}

TEST(NcclLife, ARevokedCommunicatorCanBeSplit) {
  run_nccl_threads(2, [](ncclComm_t comm, int rank) {
    float x = 1;
    EXPECT_NCCL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, nullptr), ncclInvalidUsage);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
    ncclComm_t child = nullptr;
    ASSERT_NCCL(ncclCommSplit(comm, 0, 0, &child, nullptr));
    expect_members(child, rank, 0b11, rank);
    EXPECT_NCCL(ncclCommDestroy(child));
  });
}

TEST(NcclLife, SuspendingGivesMemoryBack) {
  run_nccl_processes(2, [](ncclComm_t comm, int) {
    std::vector<float> x(1 << 18, 1), y(1 << 18);
    const auto stat = [&](ncclCommMemStat_t which) {
      uint64_t value = UINT64_MAX;
      EXPECT_NCCL(ncclCommMemStats(comm, which, &value));
      return value;
    };
    ASSERT_NCCL(ncclAllReduce(x.data(), y.data(), x.size(), ncclFloat, ncclSum, comm, nullptr));
    const uint64_t can_be_given_back = stat(ncclStatGpuMemSuspend), before = stat(ncclStatGpuMemTotal);
    EXPECT_GT(can_be_given_back, 0u);
    EXPECT_EQ(before, can_be_given_back + stat(ncclStatGpuMemPersist));
    EXPECT_EQ(stat(ncclStatGpuMemSuspended), 0u);
    ASSERT_NCCL(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
    EXPECT_EQ(stat(ncclStatGpuMemSuspended), 1u);
    EXPECT_LT(stat(ncclStatGpuMemTotal), before);
    EXPECT_EQ(stat(ncclStatGpuMemTotal), stat(ncclStatGpuMemPersist));
    EXPECT_EQ(stat(ncclStatGpuMemSuspend), can_be_given_back);
    EXPECT_EQ(ncclAllReduce(x.data(), y.data(), x.size(), ncclFloat, ncclSum, comm, nullptr),
              ncclInvalidUsage);
    ASSERT_NCCL(ncclCommResume(comm));
    EXPECT_EQ(stat(ncclStatGpuMemSuspended), 0u);
    ASSERT_NCCL(ncclAllReduce(x.data(), y.data(), x.size(), ncclFloat, ncclSum, comm, nullptr));
    for (const float v : y) ASSERT_EQ(v, 2);
    uint64_t value = 0;
    EXPECT_NCCL_FAILS(ncclCommMemStats(comm, static_cast<ncclCommMemStat_t>(9), &value), ncclInvalidArgument,
                      "stat 9");
  });
}

// --- not blocking ---

ncclConfig_t nonblocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  const auto start = std::chrono::steady_clock::now();
  while (state == ncclInProgress && std::chrono::steady_clock::now() - start < std::chrono::seconds(30)) {
    EXPECT_NCCL(ncclCommGetAsyncError(comm, &state));
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return state;
}

#define EXPECT_STARTED(call) \
  EXPECT_THAT(call, testing::AnyOf(ncclSuccess, ncclInProgress)) << ncclGetLastError(nullptr)

TEST(NcclNonblocking, ARankThatComesLateIsPolledFor) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ncclConfig_t config = nonblocking();
  ncclComm_t first = nullptr, second = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  EXPECT_NCCL(ncclCommGetAsyncError(first, &state));
  EXPECT_EQ(state, ncclInProgress);
  float x = 1, y = 0;
  EXPECT_NCCL_FAILS(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, first, nullptr), ncclInvalidArgument,
                    "made");
  int count = 0;
  EXPECT_EQ(ncclCommCount(first, &count), ncclInvalidArgument);
  EXPECT_STARTED(ncclCommInitRankConfig(&second, 2, id, 1, &config));
  EXPECT_EQ(settled(first), ncclSuccess);
  EXPECT_EQ(settled(second), ncclSuccess);
  // Calls go on in the background: one rank's is under way until the other has called.
  float in[2] = {1, 2}, out[2] = {};
  EXPECT_EQ(ncclAllReduce(&in[0], &out[0], 1, ncclFloat, ncclSum, first, nullptr), ncclInProgress);
  EXPECT_STARTED(ncclAllReduce(&in[1], &out[1], 1, ncclFloat, ncclSum, second, nullptr));
  EXPECT_EQ(settled(first), ncclSuccess);
  EXPECT_EQ(settled(second), ncclSuccess);
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[1], 3);
  EXPECT_STARTED(ncclCommFinalize(first));
  EXPECT_STARTED(ncclCommFinalize(second));
  EXPECT_EQ(settled(first), ncclSuccess);
  EXPECT_EQ(settled(second), ncclSuccess);
  EXPECT_NCCL(ncclCommDestroy(first));
  EXPECT_NCCL(ncclCommDestroy(second));
}

TEST(NcclNonblocking, AGroupsEndSaysThatItGoesOn) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ncclConfig_t config = nonblocking();
  ncclComm_t comms[2] = {};
  ASSERT_NCCL(ncclGroupStart());
  for (int r = 0; r < 2; ++r) EXPECT_STARTED(ncclCommInitRankConfig(&comms[r], 2, id, r, &config));
  EXPECT_STARTED(ncclGroupEnd());
  for (const ncclComm_t c : comms) EXPECT_EQ(settled(c), ncclSuccess);
  ncclComm_t children[2] = {};
  ASSERT_NCCL(ncclGroupStart());
  for (int r = 0; r < 2; ++r) EXPECT_STARTED(ncclCommSplit(comms[r], 0, 0, &children[r], nullptr));
  EXPECT_STARTED(ncclGroupEnd());
  float in[2] = {1, 2}, out[2] = {};
  for (const ncclComm_t c : children) EXPECT_EQ(settled(c), ncclSuccess);
  ASSERT_NCCL(ncclGroupStart());
  for (int r = 0; r < 2; ++r)
    EXPECT_STARTED(ncclAllReduce(&in[r], &out[r], 1, ncclFloat, ncclSum, children[r], nullptr));
  EXPECT_STARTED(ncclGroupEnd());
  for (const ncclComm_t c : children) EXPECT_EQ(settled(c), ncclSuccess);
  EXPECT_THAT(out, testing::Each(3));
  for (int r = 0; r < 2; ++r) {
    EXPECT_NCCL(ncclCommDestroy(children[r]));
    EXPECT_NCCL(ncclCommDestroy(comms[r]));
  }
}

TEST(NcclNonblocking, AbortEndsMaking) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ncclConfig_t config = nonblocking();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NCCL(ncclCommAbort(comm));
  EXPECT_LT(std::chrono::steady_clock::now() - start,
            std::chrono::seconds(10));  // not the deadline of making
}

TEST(NcclNonblocking, AnErrorBecomesTheCommunicators) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ncclConfig_t config = nonblocking();
  ncclComm_t comms[2] = {};
  for (int r = 0; r < 2; ++r) EXPECT_STARTED(ncclCommInitRankConfig(&comms[r], 2, id, r, &config));
  for (const ncclComm_t c : comms) ASSERT_EQ(settled(c), ncclSuccess);
  float x[2][2] = {};
  for (int r = 0; r < 2; ++r)
    EXPECT_STARTED(
        ncclAllReduce(x[r], x[r], static_cast<size_t>(1 + r), ncclFloat, ncclSum, comms[r], nullptr));
  for (const ncclComm_t c : comms) {
    EXPECT_EQ(settled(c), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(c), HasSubstr("calls don't match"));
    EXPECT_NCCL(ncclCommDestroy(c));
  }
}

}  // namespace
}  // namespace muster
