// Whole jobs on two hosts of the virtual machine, joined by RDMA alone for data: the bench binaries, over the verbs transport and
// over UCX's.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "support/shell.h"

namespace muster {
namespace {

using test::output_of;
using testing::AllOf;
using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

// Runs `command` on each of `per_host` ranks of each of two hosts; host I has device rxeI. What each said, and its status.
std::vector<test::Output> job(int per_host, const std::string& environment, const std::string& command, const std::function<void()>& meanwhile = {}) {
  static int port = 29500;
  ++port;
  const int n = 2 * per_host;
  std::vector<test::Output> r(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      const int host = rank / per_host;
      r[static_cast<size_t>(rank)] = output_of(fmt::format(
          "MASTER_ADDR=h0 MASTER_PORT={} WORLD_SIZE={} LOCAL_WORLD_SIZE={} RANK={} LOCAL_RANK={} NCCL_HOSTID=h{} NCCL_IB_HCA=rxe{} NCCL_DEBUG=INFO "
          "NCCL_DEBUG_SUBSYS=INIT,NET {} roce-host {} {} 2>&1",
          port, n, per_host, rank, rank % per_host, host, host, environment, host, command));
    });
  if (meanwhile) meanwhile();
  for (auto& t : threads) t.join();
  return r;
}

std::string perf(const std::string& name, const std::string& flags) { return fmt::format("{}/{} --roof 0 --rotate 0 {}", PERF_FOLDER, name, flags); }

void expect_right(const std::vector<test::Output>& ranks, const std::string& network) {
  for (const auto& o : ranks) {
    EXPECT_EQ(o.status, 0) << o.text;
    EXPECT_THAT(o.text, HasSubstr("to others by " + network));
  }
  EXPECT_THAT(ranks[0].text, HasSubstr("# Out of bounds values : 0 OK"));
}

constexpr const char* kInPlace = "are registered to be sent from where they are";

// Buffers are of mem_alloc.
TEST(Jobs, AllReduceOverVerbsIsRightAtEverySizeAndSendsInPlace) {
  const auto ranks = job(1, "", perf("all_reduce_perf", "-b 8 -e 2M -f 8 -n 1"));
  expect_right(ranks, "verbs");
  for (const auto& o : ranks) EXPECT_THAT(o.text, HasSubstr(kInPlace));
}

TEST(Jobs, WhatIsAWindowIsSentInPlaceAndOtherMemoryIsCopied) {
  for (const char* window : {"", "-R 2"})
    for (const auto& o : job(1, "", perf("all_reduce_perf", fmt::format("-b 256K -e 256K -n 1 --buffers malloc {}", window)))) {
      EXPECT_EQ(o.status, 0) << o.text;
      EXPECT_EQ(o.text.find(kInPlace) != o.text.npos, *window != 0) << o.text;
    }
}

TEST(Jobs, OtherCollectivesOverVerbsAreRight) {
  for (const char* name : {"all_gather_perf", "reduce_scatter_perf", "broadcast_perf", "alltoall_perf"})
    expect_right(job(1, "NCCL_NET=IB", perf(name, "-b 1K -e 256K -f 16 -n 1")), "verbs");
}

TEST(Jobs, RanksOfOneHostShareMemoryAndHostsRdma) {
  expect_right(job(2, "NCCL_IB_QPS_PER_CONNECTION=2", perf("all_reduce_perf", "-b 1K -e 256K -f 16 -n 1")), "verbs");
}

TEST(Jobs, AllReduceOverUcxAndRdmaIsRight) {
  const auto ranks = job(1, "NCCL_NET=ucx UCX_TLS=rc_verbs,ud_verbs UCX_LOG_LEVEL=info", perf("all_reduce_perf", "-b 8 -e 256K -f 16 -n 1"));
  expect_right(ranks, "ucx");
}

TEST(Jobs, WithoutRdmaByOptionTcpIsUsed) {
  expect_right(job(1, "NCCL_IB_DISABLE=1", perf("all_reduce_perf", "-b 64K -e 64K -n 2")), "tcp");
}

TEST(Jobs, ACablePulledInACallIsAnErrorOnAllRanksThatNamesPortsAndPeer) {
  const auto ranks = job(1, "NCCL_IB_TIMEOUT=12 MUSTER_LINK_TIMEOUT=8", perf("all_reduce_perf", "-b 64K -e 64K -n 1000000 -c 0"), [] {
    std::this_thread::sleep_for(std::chrono::seconds(8));
    EXPECT_EQ(output_of("roce-link 1 down").status, 0);
  });
  EXPECT_EQ(output_of("roce-link 1 up").status, 0);
  std::string all;
  for (const auto& o : ranks) {
    EXPECT_NE(o.status, 0);
    EXPECT_THAT(o.text, ContainsRegex("rank [01] \\(host h[01]"));
    all += o.text;
  }
  EXPECT_THAT(all, AllOf(HasSubstr("rxe0:1 10.77.0.1"), HasSubstr("rxe1:1 10.77.0.2"), HasSubstr("IBV_WC_RETRY_EXC_ERR")));
}

TEST(Jobs, DevicesThatDontServeAreNamedWithTheReason) {
  const auto ranks = job(1, "NCCL_NET=verbs NCCL_IB_GID_INDEX=9", perf("all_reduce_perf", "-b 8 -e 8"));
  for (const auto& o : ranks) EXPECT_NE(o.status, 0);
  EXPECT_THAT(ranks[0].text + ranks[1].text, HasSubstr("has no GID at NCCL_IB_GID_INDEX=9"));
}

}  // namespace
}  // namespace muster
