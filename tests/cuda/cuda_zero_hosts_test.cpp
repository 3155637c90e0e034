// Training with state on GPUs of several hosts, emulated with NCCL_HOSTID: the host's bits, and what crosses.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda/gpu_training.h"
#include "cuda/gpus.h"
#include "support/needs_network.h"
#include "support/outcome.h"
#include "support/processes.h"

namespace muster::zero {
namespace {

using muster::test::Variable;
using test::kOdd;
using test::options_of;

// A process each, with a GPU, on the host that `host_of` says.
void on_hosts(const std::vector<int>& host_of, const std::function<void(Communicator&, int rank)>& fn) {
  muster::test::run_processes(static_cast<int>(host_of.size()), [&](int rank) {
    const Variable host("NCCL_HOSTID", "host" + std::to_string(host_of[static_cast<size_t>(rank)]));
    Communicator c = Communicator::from_environment();
    fn(c, rank);
    c.destroy();
  });
}

void expect_the_hosts_bits_of_all_stages(Communicator& c, int rank) {
  for (int stage = 0; stage < kStages; ++stage) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    Options o = options_of(stage);
    o.clip_norm = 0.05;
    o.micro_batches = 2;
    test::train_both(c, rank, o, 2);
  }
}

TEST(CudaZeroHosts, AGpuEach) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  on_hosts({0, 1}, expect_the_hosts_bits_of_all_stages);
}

TEST(CudaZeroHosts, TwoGpusEach) {
  MUSTER_NEEDS_GPUS(4);
  NEED_NETWORK();
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  on_hosts({0, 1, 0, 1}, expect_the_hosts_bits_of_all_stages);
}

// Shards inside a host, replicas across.
TEST(CudaZeroHosts, ShardsInsideHostsReplicasAcross) {
  MUSTER_NEEDS_GPUS(4);
  NEED_NETWORK();
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  on_hosts({0, 0, 1, 1}, [](Communicator& c, int rank) {
    Communicator host = c.split(rank / 2, rank), across = c.split(rank % 2, rank);
    for (int stage = 1; stage < kStages; ++stage) {
      SCOPED_TRACE(testing::Message() << "stage " << stage);
      Options o = options_of(stage);
      o.quantised_gather = stage == 2;
      test::train_both(host, rank % 2, o, 2, &across);
    }
  });
}

// Of N = 2 shards and R = 2 hosts: between GPUs of a host the traffic of N ranks; to other hosts an
// all-reduce of a shard of gradients, 2 (R-1)/R of it, and no parameters.
TEST(CudaZeroHosts, OnlyAShardOfGradientsCrosses) {
  MUSTER_NEEDS_GPUS(4);
  NEED_NETWORK();
  const Variable forced("MUSTER_ALGO", "ring");
  on_hosts({0, 0, 1, 1}, [](Communicator& c, int rank) {
    Communicator host = c.split(rank / 2, rank), across = c.split(rank % 2, rank);
    const test::Values start = test::initial_values(kOdd);
    for (int stage = 2; stage < kStages; ++stage) {
      Options o = options_of(stage);
      o.alignment = 64;
      test::GpuTrainee at(rank);
      Optimizer zero(host, test::tensors_of(start), o, at.stream(), &across);
      const BytesSent before = zero.bytes_sent();
      at.micro_batch(zero, kOdd, o.type, rank, 0, 1);
      zero.step();
      const BytesSent step = zero.bytes_sent() - before;
      EXPECT_EQ(step.gpu, step_traffic_bytes(zero.layout().padded(), 2, stage)) << "stage " << stage;
      EXPECT_EQ(step.network, zero.layout().shard() * size_of(o.type)) << "stage " << stage;
      EXPECT_EQ(step.total(), step.gpu + step.network);
    }
  });
}

}  // namespace
}  // namespace muster::zero
