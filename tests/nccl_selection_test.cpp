// The C interface: algorithms that one call selects.
#include <vector>

#include "nccl_support.h"

namespace muster {
namespace {

using test::AllRanks;
using test::run_nccl_processes;
using test::run_nccl_threads;

ncclCollConfig_t select(const char* algorithms, int force = 1) {
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.algSelection = algorithms;
  config.forceAlgSelection = force;
  return config;
}

// Each collective by each algorithm that could be selected, among others: results are those of the plain call.
void run_all(ncclComm_t comm, int rank, int n) {
  for (const size_t count : {size_t{5}, size_t{20'000}})
    for (const char* algorithm : {"one_shot", "direct", "ring", "doubling", "halving", "bruck,direct", "^direct"}) {
      SCOPED_TRACE(algorithm);
      const auto config = select(algorithm, 0);
      std::vector<int32_t> in(count), out(count, -1);
      for (size_t i = 0; i < count; ++i) in[i] = rank + static_cast<int32_t>(i);
      EXPECT_NCCL(ncclAllReduceConfig(in.data(), out.data(), count, ncclInt32, ncclSum, comm, nullptr, &config));
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], n * (n - 1) / 2 + n * static_cast<int32_t>(i));
      EXPECT_NCCL(ncclBroadcastConfig(in.data(), out.data(), count, ncclInt32, n - 1, comm, nullptr, &config));
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], n - 1 + static_cast<int32_t>(i));
      out.assign(count * static_cast<size_t>(n), -1);
      EXPECT_NCCL(ncclAllGatherConfig(in.data(), out.data(), count, ncclInt32, comm, nullptr, &config));
      for (int r = 0; r < n; ++r)
        ASSERT_EQ(out[(static_cast<size_t>(r) + 1) * count - 1], r + static_cast<int32_t>(count) - 1);
    }
}

TEST(NcclSelection, AnyAlgorithmGivesTheSameResult) {
  run_nccl_threads(4, [](ncclComm_t comm, int rank) { run_all(comm, rank, 4); });
  run_nccl_processes(3, [](ncclComm_t comm, int rank) { run_all(comm, rank, 3); });
}

TEST(NcclSelection, OneThatCannotBeMetFailsOnAllRanksAndDoesNoHarm) {
  run_nccl_threads(3, [](ncclComm_t comm, int rank) {
    std::vector<float> x(100'000, static_cast<float>(rank)), y(x.size(), -1);
    const auto nvls = select("nvls"), bruck = select("bruck"), wish = select("nvls,bruck", 0);
    EXPECT_NCCL_FAILS(ncclAllReduceConfig(x.data(), y.data(), x.size(), ncclFloat, ncclSum, comm, nullptr, &nvls),
                      ncclInvalidArgument, "There are: one_shot, direct, ring");
    EXPECT_NCCL_FAILS(ncclAllReduceConfig(x.data(), y.data(), x.size(), ncclFloat, ncclSum, comm, nullptr, &bruck),
                      ncclInvalidArgument, "Possible are: one_shot, direct, ring, doubling");
    EXPECT_EQ(y[0], -1);
    EXPECT_NCCL(ncclAllReduceConfig(x.data(), y.data(), x.size(), ncclFloat, ncclSum, comm, nullptr, &wish));
    EXPECT_EQ(y[99'999], 3);
    EXPECT_NCCL(ncclAllReduceConfig(x.data(), y.data(), 10, ncclFloat, ncclSum, comm, nullptr, &bruck));
    // It is read before the call returns, in a group, too.
    EXPECT_NCCL(ncclGroupStart());
    {
      std::string name = "ring";
      auto ring = select(name.c_str());
      EXPECT_NCCL(ncclAllReduceConfig(x.data(), y.data(), x.size(), ncclFloat, ncclMax, comm, nullptr, &ring));
      name = "nvls";
      ring.magic = 0;
    }
    EXPECT_NCCL(ncclGroupEnd());
    EXPECT_EQ(y[0], 2);
    // A refused call ends the group.
    EXPECT_NCCL(ncclGroupStart());
    EXPECT_NCCL_FAILS(ncclAllReduceConfig(x.data(), y.data(), 1, ncclFloat, ncclSum, comm, nullptr, &nvls),
                      ncclInvalidArgument, "nvls");
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  });
}

TEST(NcclSelection, ThatDiffersBetweenRanksIsAMismatch) {
  run_nccl_threads(2, [](ncclComm_t comm, int rank) {
    int32_t x = 1, y = 0;
    const auto config = select(rank == 0 ? "tree" : "direct");  // the last, and one of the first
    EXPECT_NCCL_FAILS(ncclAllReduceConfig(&x, &y, 1, ncclInt32, ncclSum, comm, nullptr, &config), ncclInvalidUsage,
                      "sum, by tree)");
    EXPECT_THAT(ncclGetLastError(comm), testing::HasSubstr("sum, by direct)"));
  });
}

TEST(NcclSelection, WrongArgumentsAreFoundFirst) {
  AllRanks comms(2);
  float x = 0;
  const auto ring = select("ring");
  EXPECT_NCCL_FAILS(ncclAllReduceConfig(&x, &x, 1, static_cast<ncclDataType_t>(99), ncclSum, comms[0], nullptr, &ring),
                    ncclInvalidArgument, "99");
  EXPECT_NCCL_FAILS(ncclReduceConfig(&x, &x, 1, ncclFloat, ncclSum, 7, comms[0], nullptr, &ring), ncclInvalidArgument,
                    "root 7");
  EXPECT_NCCL_FAILS(ncclAllReduceConfig(&x, &x, 1, ncclFloat, ncclSum, nullptr, nullptr, &ring), ncclInvalidArgument,
                    "comm is NULL");
}

}  // namespace
}  // namespace muster
