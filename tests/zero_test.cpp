// Training with sharded state: all stages against each other bit for bit, against one rank in float64, and
// what they take and send to the byte.
#include "muster/zero.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "support/outcome.h"
#include "support/ranks.h"
#include "zero_support.h"

namespace muster::zero {
namespace {

using muster::test::outcome_of;
using muster::test::run_process_ranks;
using muster::test::run_threads;
using muster::test::Variable;
using test::backward;
using test::kOdd;
using test::options_of;
using test::Sizes;
using test::Values;

// Parameters of rank 0 after some steps; all ranks must have the same.
Values train(int ranks, const Sizes& sizes, const Options& o, int steps) {
  Values result;
  run_threads(ranks, [&](Communicator& c, int rank) {
    const Values start = test::initial_values(sizes);
    Optimizer zero(c, test::tensors_of(start), o);
    for (int s = 0; s < steps; ++s) {
      for (int k = 0; k < o.micro_batches; ++k)
        test::run_micro_batch(zero, sizes, o.type, rank, k, zero.loss_scale(), backward(sizes));
      zero.step();
    }
    const Values mine = test::parameters_of(zero, sizes, o.type);
    for (const std::vector<float>& values : mine) {
      std::vector<float> first = values;
      c.broadcast(first.data(), first.data(), first.size(), DataType::float32, 0);
      EXPECT_EQ(values, first) << "rank " << rank;
    }
    if (rank == 0) result = mine;
  });
  return result;
}

TEST(Zero, StagesGiveTheSameBits) {
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  const std::pair<DataType, double> cases[] = {
      {DataType::bfloat16, 0}, {DataType::bfloat16, 0.05}, {DataType::float16, 0.05}, {DataType::float32, 0}};
  for (const auto& [type, clip] : cases)
    for (const int ranks : {1, 3, 4}) {
      Options o = options_of(0, type);
      o.clip_norm = clip;
      o.micro_batches = ranks == 4 ? 1 : 3;
      const Values whole = train(ranks, kOdd, o, 3);
      for (o.stage = 1; o.stage < kStages; ++o.stage)
        EXPECT_EQ(train(ranks, kOdd, o, 3), whole)
            << "stage " << o.stage << ", " << name_of(type) << ", " << ranks << " ranks, clip " << clip;
    }
}

// float32: roundings of 5 steps. 16-bit types: gradients are rounded to 8 or 11 bits, which moves a step of
// 0.01 by as much of itself, and parameters, below 2 in magnitude, once more.
TEST(Zero, FollowsOneRankWithAllData) {
  constexpr int kSteps = 5;
  for (const DataType type : {DataType::bfloat16, DataType::float16, DataType::float32})
    for (int stage = 0; stage < kStages; ++stage) {
      Options o = options_of(stage, type);
      o.micro_batches = 2;
      o.clip_norm = 0.5;
      test::Reference reference(kOdd, o, 3);
      for (int s = 0; s < kSteps; ++s) reference.step();
      const Values got = train(3, kOdd, o, kSteps);
      const double half_ulp = type == DataType::bfloat16  ? 0x1p-9
                              : type == DataType::float16 ? 0x1p-12
                                                          : 0x1p-24;
      const double bound = 2 * half_ulp + kSteps * 0.01 * 16 * half_ulp + 2e-6;
      for (size_t t = 0; t < kOdd.size(); ++t)
        for (size_t i = 0; i < kOdd[t]; ++i)
          ASSERT_NEAR(static_cast<double>(got[t][i]), reference.at(t, i), bound)
              << "stage " << stage << ", " << name_of(type) << ", tensor " << t << ", " << i;
    }
}

// Buckets cut at odd places, more than one rank's padding, and a tensor larger than a bucket.
TEST(Zero, BucketsAndAlignmentDoNotMatter) {
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  for (const int ranks : {3, 5}) {
    const Values whole = train(ranks, kOdd, options_of(0, DataType::bfloat16, 1 << 20), 2);
    for (const int stage : {0, 2, 3})
      for (const size_t bucket : {6, 77, 1 << 20})
        for (const size_t alignment : {1, 64}) {
          Options o = options_of(stage, DataType::bfloat16, bucket);
          o.alignment = alignment;
          o.prefetch = static_cast<int>(bucket % 4);
          EXPECT_EQ(train(ranks, kOdd, o, 2), whole)
              << "stage " << stage << ", bucket " << bucket << ", alignment " << alignment;
        }
  }
}

TEST(Zero, SizesThatRanksDoNotDivide) {
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  const Sizes odd{1, 5, 7, 1'000'003}, empty{8, 0, 24};
  Options whole = options_of(0), shards = options_of(2);
  EXPECT_EQ(train(3, odd, shards, 1), train(3, odd, whole, 1));
  EXPECT_EQ(train(2, empty, shards, 2), train(2, empty, whole, 2));
}

TEST(Zero, StateTakesWhatTheFormulaSays) {
  run_threads(4, [](Communicator& c, int) {
    const Values start = test::initial_values(kOdd);
    for (const DataType type : {DataType::bfloat16, DataType::float16, DataType::float32})
      for (int stage = 0; stage < kStages; ++stage) {
        const Optimizer zero(c, test::tensors_of(start), options_of(stage, type));
        EXPECT_EQ(zero.allocated(), state_bytes(zero.layout().padded(), 4, stage, type));
        EXPECT_EQ(state_bytes(zero.layout().padded(), 1, stage, type).total(), zero.layout().padded() * 16);
      }
  });
}

// Without clipping and at one micro-batch, by algorithms that send each byte once: DDP and ZeRO-2 the same,
// ZeRO-3 1.5 times as much.
TEST(Zero, StepsSendWhatTheFormulaSays) {
  for (const char* algorithm : {"ring", "direct"}) {
    const Variable forced("MUSTER_ALGO", algorithm), slots("MUSTER_WINDOWS", "0");
    for (const int ranks : {2, 3, 4})
      run_threads(ranks, [&](Communicator& c, int rank) {
        const Values start = test::initial_values(kOdd);
        std::vector<uint64_t> sent;
        for (int stage = 0; stage < kStages; ++stage) {
          // So that a ring's chunks are equal, and then all ranks send alike.
          Options o = options_of(stage);
          o.alignment = 32;
          Optimizer zero(c, test::tensors_of(start), o);
          const uint64_t before = zero.bytes_sent().total();  // what the constructor compares
          test::run_micro_batch(zero, kOdd, o.type, rank, 0, 1, backward(kOdd));
          zero.step();
          sent.push_back(zero.bytes_sent().total() - before);
          EXPECT_EQ(sent.back(), step_traffic_bytes(zero.layout().padded(), ranks, stage))
              << algorithm << ", stage " << stage;
        }
        EXPECT_EQ(sent[2], sent[0]);
        EXPECT_EQ(sent[3] * 2, sent[0] * 3);
      });
  }
}

TEST(Zero, OverflowIsSkippedByAllAlike) {
  for (int stage = 0; stage < kStages; ++stage)
    run_threads(3, [&](Communicator& c, int rank) {
      const Values start = test::initial_values(kOdd);
      Options o = options_of(stage, DataType::float16);
      o.scale_growth = 2;
      Optimizer zero(c, test::tensors_of(start), o);
      EXPECT_EQ(zero.loss_scale(), 65536);
      const Values before = test::parameters_of(zero, kOdd, o.type);
      std::vector<float> bad(kOdd[3], 1);
      if (rank == 1)
        bad[17] =
            stage % 2 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
      zero.gradient(3, test::rounded(bad, o.type).data());
      zero.end_micro_batch();
      EXPECT_TRUE(zero.step().skipped);
      EXPECT_EQ(zero.loss_scale(), 32768);
      EXPECT_EQ(test::parameters_of(zero, kOdd, o.type), before);
      for (int s = 0; s < 2; ++s) {
        test::run_micro_batch(zero, kOdd, o.type, rank, 0, zero.loss_scale(), backward(kOdd));
        EXPECT_FALSE(zero.step().skipped);
      }
      EXPECT_EQ(zero.loss_scale(), 65536);
      EXPECT_NE(test::parameters_of(zero, kOdd, o.type), before);
    });
}

TEST(Zero, GradientsAreClippedByTheirGlobalNorm) {
  run_threads(2, [](Communicator& c, int) {
    const std::vector<float> values(4, 1);
    const Tensor tensor{values.data(), 4};
    for (int stage = 0; stage < kStages; ++stage) {
      Options o = options_of(stage, DataType::float32);
      o.clip_norm = 1;
      Optimizer zero(c, {&tensor, 1}, o);
      const std::vector<float> gradient(4, 1.5f);
      zero.gradient(0, gradient.data());
      zero.end_micro_batch();
      EXPECT_DOUBLE_EQ(zero.step().norm.value(), 3);
    }
  });
}

// Stage 3 keeps what is used and what comes next, and releases it.
TEST(Zero, GatheredBucketsAreReleased) {
  run_threads(2, [](Communicator& c, int) {
    const Sizes sizes(6, 100);
    const Values start = test::initial_values(sizes);
    for (const int prefetch : {0, 1, 3}) {
      Options o = options_of(3, DataType::float32, 100);
      o.prefetch = prefetch;
      Optimizer zero(c, test::tensors_of(start), o);
      for (size_t t = 0; t < sizes.size(); ++t) {
        EXPECT_EQ(test::exact(zero.use(t, Pass::forward), 100, o.type), start[t]);
        zero.done(t);
      }
      for (size_t t = sizes.size(); t > 0; --t) {
        EXPECT_EQ(test::exact(zero.use(t - 1, Pass::backward), 100, o.type), start[t - 1]);
        zero.done(t - 1);
      }
      EXPECT_EQ(zero.passing_bytes(), (1 + static_cast<size_t>(prefetch)) * 400);
    }
  });
}

// Two hosts of two ranks: shards inside a host, the same on each.
TEST(Zero, ShardsInsideHostsReplicasAcross) {
  for (const int stage : {1, 2, 3}) {
    Values hierarchical, flat;
    run_threads(4, [&](Communicator& c, int rank) {
      Communicator host = c.split(rank / 2, rank), across = c.split(rank % 2, rank);
      const Values start = test::initial_values(kOdd);
      const Options o = options_of(stage, DataType::float32);
      Optimizer two(host, test::tensors_of(start), o, &across), one(c, test::tensors_of(start), o);
      for (int s = 0; s < 3; ++s)
        for (Optimizer* zero : {&two, &one}) {
          test::run_micro_batch(*zero, kOdd, o.type, rank, 0, 1, backward(kOdd));
          zero->step();
        }
      EXPECT_EQ(two.allocated(), state_bytes(two.layout().padded(), 2, stage, o.type));
      const Values mine = test::parameters_of(two, kOdd, o.type),
                   others = test::parameters_of(one, kOdd, o.type);
      for (size_t t = 0; t < kOdd.size(); ++t)
        for (size_t i = 0; i < kOdd[t]; ++i) ASSERT_NEAR(mine[t][i], others[t][i], 2e-5f);
      for (const std::vector<float>& values : mine) {
        std::vector<float> first = values;
        c.broadcast(first.data(), first.data(), first.size(), DataType::float32, 0);
        EXPECT_EQ(values, first);
      }
    });
  }
}

// What is computed with is off by at most max|x| / 254 of the block and a rounding; what is kept has all
// bits; about half is sent.
TEST(Zero, QuantisedGatherStaysWithinItsBound) {
  for (int stage = 1; stage < kStages; ++stage)
    run_threads(3, [&](Communicator& c, int rank) {
      const Values start = test::initial_values(kOdd);
      Options o = options_of(stage, DataType::bfloat16, 1 << 20);
      Optimizer full(c, test::tensors_of(start), o);
      o.quantised_gather = true;
      Optimizer quantised(c, test::tensors_of(start), o);
      uint64_t sent[2];
      for (Optimizer* zero : {&full, &quantised}) {
        const uint64_t before = zero->bytes_sent().total();
        for (size_t t = 0; t < kOdd.size(); ++t) {  // the same gradients for both
          zero->use(t, Pass::forward);
          zero->done(t);
          std::vector<float> g(kOdd[t]);
          for (size_t i = 0; i < g.size(); ++i) g[i] = test::gradient_of(start[t][i], t, i, rank, 0);
          zero->gradient(t, test::rounded(g, o.type).data());
        }
        zero->end_micro_batch();
        zero->step();
        sent[zero == &quantised] = zero->bytes_sent().total() - before;
      }
      EXPECT_LT(sent[1], sent[0]);
      const Values want = test::parameters_of(full, kOdd, o.type),
                   got = test::parameters_of(quantised, kOdd, o.type);
      for (size_t t = 0; t < kOdd.size(); ++t) {
        std::vector<float> first = got[t];
        c.broadcast(first.data(), first.data(), first.size(), DataType::float32, 0);
        EXPECT_EQ(got[t], first);
        for (size_t i = 0; i < kOdd[t]; ++i)
          ASSERT_NEAR(got[t][i], want[t][i], 1.1f / 254 + 0x1p-8f) << "stage " << stage;
      }
    });
}

TEST(Zero, RanksAsProcesses) {
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  run_process_ranks(3, [](Communicator& c, int rank) {
    const Values start = test::initial_values(kOdd);
    Values whole;
    for (int stage = 0; stage < kStages; ++stage) {
      Optimizer zero(c, test::tensors_of(start), options_of(stage));
      for (int s = 0; s < 2; ++s) {
        test::run_micro_batch(zero, kOdd, DataType::bfloat16, rank, 0, 1, backward(kOdd));
        zero.step();
      }
      const Values got = test::parameters_of(zero, kOdd, DataType::bfloat16);
      if (stage == 0) whole = got;
      EXPECT_EQ(got, whole) << "stage " << stage;
    }
  });
}

TEST(Zero, ARankThatLeavesIsAnErrorForTheOthers) {
  for (int stage = 0; stage < kStages; ++stage)
    run_threads(3, [&](Communicator& c, int rank) {
      const Values start = test::initial_values(kOdd);
      Optimizer zero(c, test::tensors_of(start), options_of(stage));
      if (rank == 1) return;
      const auto outcome = outcome_of([&] {
        test::run_micro_batch(zero, kOdd, DataType::bfloat16, rank, 0, 1, backward(kOdd));
        zero.step();
      });
      EXPECT_EQ(outcome.code, Result::remote_error) << "stage " << stage << ": " << outcome.text;
    });
}

TEST(Zero, RefusesWhatIsWrong) {
  run_threads(2, [](Communicator& c, int rank) {
    const Values start = test::initial_values({4, 4});
    const std::vector<Tensor> tensors = test::tensors_of(start);
    const auto refused = [&](const Options& o, Result code, const char* text) {
      const auto outcome = outcome_of([&] { Optimizer(c, tensors, o); });
      EXPECT_EQ(outcome.code, code) << outcome.text;
      EXPECT_THAT(outcome.text, testing::HasSubstr(text));
    };
    Options o = options_of(4);
    refused(o, Result::invalid_argument, "stage 4");
    o = options_of(2, DataType::int32);
    refused(o, Result::invalid_argument, "int32");
    o = options_of(2);
    o.micro_batches = 0;
    refused(o, Result::invalid_argument, "micro_batches is 0");
    o = options_of(0);
    o.quantised_gather = true;
    refused(o, Result::invalid_argument, "nothing is gathered");
    o = options_of(2);
    o.adam.learning_rate += static_cast<float>(rank);
    refused(o, Result::invalid_usage, "rank 1 has other options");
    // Programs without the library's part for GPUs.
    const auto on_gpu = outcome_of([&] { Optimizer(c, tensors, options_of(2), GpuStream{}); });
    EXPECT_EQ(on_gpu.code, Result::invalid_usage);
    EXPECT_THAT(on_gpu.text, testing::HasSubstr("no part for GPUs"));
    Optimizer zero(c, tensors, options_of(3));
    EXPECT_EQ(outcome_of([&] { zero.step(); }).code, Result::invalid_usage);
    EXPECT_EQ(outcome_of([&] { zero.done(0); }).code, Result::invalid_usage);
    zero.use(0, Pass::forward);
    const auto gradient = test::rounded(start[0], DataType::bfloat16);
    zero.gradient(0, gradient.data());
    EXPECT_EQ(outcome_of([&] { zero.gradient(0, gradient.data()); }).code, Result::invalid_usage);
    EXPECT_EQ(outcome_of([&] { zero.gradient(2, gradient.data()); }).code, Result::invalid_argument);
    zero.end_micro_batch();
    EXPECT_EQ(outcome_of([&] { zero.end_micro_batch(); }).code, Result::invalid_usage);
    EXPECT_EQ(outcome_of([&] { zero.step(); }).code, Result::invalid_usage);  // tensor 0 is in use
    zero.done(0);
    EXPECT_FALSE(zero.step().skipped);
  });
}

}  // namespace
}  // namespace muster::zero
