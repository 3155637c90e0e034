// The helpers with ranks on two hosts: emulated, and made of namespaces. What comes out doesn't depend on
// where ranks are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "muster/expert_parallel.h"
#include "muster/mesh.h"
#include "muster/pipeline.h"
#include "muster/sequence_parallel.h"
#include "muster/tensor_parallel.h"
#include "support/hosts.h"
#include "support/needs_network.h"
#include "support/outcome.h"
#include "support/processes.h"
#include "zero_support.h"

namespace muster {
namespace {

using test::Variable;
using testing::Each;

// By rank, of four.
const std::vector<std::vector<int>> kPlacements = {{0, 0, 1, 1}, {0, 1, 0, 1}};

// Shards over all, and inside hosts with replicas across.
void train(Communicator& c, int rank, const std::vector<int>& host_of) {
  const zero::test::Sizes sizes{1, 5, 300, 0, 77};
  const zero::test::Values start = zero::test::initial_values(sizes);
  zero::Options o;
  o.type = DataType::float32;
  o.bucket = 100;
  o.micro_batches = 2;
  const auto trained = [&](Communicator& ranks, Communicator* replicas) {
    zero::Optimizer optimizer(ranks, zero::test::tensors_of(start), o, replicas);
    for (int step = 0; step < 2; ++step) {
      for (int k = 0; k < o.micro_batches; ++k)
        zero::test::run_micro_batch(optimizer, sizes, o.type, rank, k, 1, zero::test::backward(sizes));
      optimizer.step();
    }
    return zero::test::parameters_of(optimizer, sizes, o.type);
  };
  o.stage = 0;
  const zero::test::Values whole = trained(c, nullptr);
  Communicator host = c.split(host_of[static_cast<size_t>(rank)], rank), across = c.split(host.rank(), rank);
  for (o.stage = 1; o.stage < zero::kStages; ++o.stage) {
    EXPECT_EQ(trained(c, nullptr), whole) << "stage " << o.stage;
    const zero::test::Values two = trained(host, &across);
    for (size_t t = 0; t < sizes.size(); ++t)
      for (size_t i = 0; i < sizes[t]; ++i) ASSERT_NEAR(two[t][i], whole[t][i], 2e-5f) << "stage " << o.stage;
  }
}

void run_stages(Communicator& stages) {
  constexpr size_t kElements = 20'000;  // more than messages may be under way
  const PipelineSchedule schedule = one_forward_one_backward_schedule(stages.size(), 4);
  std::vector<float> gradients;
  PipelineModel model;
  model.elements = [](int m, int) { return kElements + static_cast<size_t>(m); };
  const auto plus = [](int m, const void* from, void* to, float what) {
    for (size_t i = 0; i < kElements + static_cast<size_t>(m); ++i)
      static_cast<float*>(to)[i] = static_cast<const float*>(from)[i] + what;
  };
  model.load = [](int m, void* in) {
    std::fill_n(static_cast<float*>(in), kElements + static_cast<size_t>(m), static_cast<float>(m));
  };
  model.forward = [&](int, int m, const void* in, void* out) { plus(m, in, out, 10); };
  model.loss = [&](int m, const void* out, void* gradient) { plus(m, out, gradient, 0.5f); };
  model.backward = [&](int, int m, const void*, const void* gradient, void* in) {
    gradients.push_back(static_cast<const float*>(gradient)[kElements - 1]);
    if (in) plus(m, gradient, in, 100);
  };
  run_pipeline(stages, schedule, model);
  const float first = 20.5f + (stages.rank() == 0 ? 100 : 0);
  EXPECT_EQ(gradients, (std::vector<float>{first, first + 1, first + 2, first + 3}));
}

void run_columns(Communicator& group) {
  constexpr size_t kTokens = 7, kWidth = 5;
  for (const TensorForm form : {TensorForm::replicated, TensorForm::tokens_split}) {
    TensorParallel tp(group, DataType::float32, form);
    const Shard own = form == TensorForm::tokens_split ? tp.own_tokens(kTokens) : Shard{0, kTokens};
    std::vector<float> x(kTokens * kWidth), whole(x.size());
    for (size_t i = own.begin * kWidth; i < own.end() * kWidth; ++i) x[i] = static_cast<float>(i);
    tp.enter(x.data() + own.begin * kWidth, whole.data(), kTokens, kWidth);
    std::vector<float> want(x.size());
    std::iota(want.begin(), want.end(), 0.0f);
    EXPECT_EQ(form == TensorForm::replicated ? x : whole, want);
    for (float& v : want) v *= static_cast<float>(group.rank() + 1);
    std::vector<float> y(own.count * kWidth);
    tp.leave(want.data(), y.data(), kTokens, kWidth);
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], 3 * static_cast<float>(own.begin * kWidth + i));
  }
}

void exchange(Communicator& c, int rank) {
  const std::vector<size_t> counts = {100'000, 1, 0, 70'000};
  const std::vector<int> own(counts[static_cast<size_t>(rank)], rank);
  std::vector<bool> seen(4);
  ring_exchange(c, own.data(), counts, DataType::int32, [&](int source, const void* block) {
    seen[static_cast<size_t>(source)] = true;
    const int* const values = static_cast<const int*>(block);
    EXPECT_TRUE(std::all_of(values, values + counts[static_cast<size_t>(source)],
                            [&](int v) { return v == source; }));
  });
  EXPECT_THAT(seen, Each(true));

  ExpertParallel moe(c, 3);  // of which a rank has none
  const size_t tokens = 50 * static_cast<size_t>(rank);
  std::vector<int> chosen(tokens);
  for (size_t t = 0; t < tokens; ++t) chosen[t] = static_cast<int>(t % 5 ? 2 : 0);
  moe.route(chosen, 1);
  std::vector<float> in(tokens), rows(moe.rows()), returned(moe.kept()), out(tokens);
  std::iota(in.begin(), in.end(), static_cast<float>(rank * 1000));
  moe.dispatch(in.data(), 1, rows.data());
  for (float& v : rows) v += 0.25f;
  moe.combine<float>(rows.data(), nullptr, 1, returned.data(), out.data());
  for (size_t t = 0; t < tokens; ++t) ASSERT_EQ(out[t], in[t] + 0.25f);
}

void all_helpers(Communicator& c, int rank, const std::vector<int>& host_of) {
  train(c, rank, host_of);
  MeshCommunicators comms(c, Mesh::parse("tp=2,pp=2"));
  EXPECT_EQ(comms.warnings().size(), host_of[0] == host_of[1] ? 0u : 1u) << "rank " << rank;
  run_stages(comms["pp"]);
  run_columns(comms["tp"]);
  exchange(c, rank);
  c.destroy();
}

TEST(ParallelHosts, Emulated) {
  NEED_NETWORK();
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  for (const std::vector<int>& host_of : kPlacements)
    test::run_processes(4, [&](int rank) {
      const Variable host("NCCL_HOSTID", "host" + std::to_string(host_of[static_cast<size_t>(rank)]));
      Communicator c = Communicator::from_environment();
      all_helpers(c, rank, host_of);
    });
}

TEST(ParallelHosts, OfNamespaces) {
  NEED_NETWORK();
  NEED_HOSTS();
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  const test::Hosts hosts({.hosts = 2});
  for (const std::vector<int>& host_of : kPlacements)
    hosts.run(host_of, [&](int rank) {
      Communicator c = Communicator::from_environment();
      all_helpers(c, rank, host_of);
    });
}

}  // namespace
}  // namespace muster
