// Training with state on GPUs: the host's bits at every stage, in the order of a stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "cuda/gpu_training.h"
#include "cuda/gpus.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster::zero {
namespace {

using muster::test::outcome_of;
using muster::test::run_threads;
using muster::test::Variable;
using test::backward;
using test::expect_same_parameters;
using test::GpuTrainee;
using test::kOdd;
using test::options_of;
using test::train_both;
using test::Values;
using testing::HasSubstr;

// A test for each type: the simulator compiles its kernels first.
void expect_the_hosts_bits(DataType type, double clip) {
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  for (const int ranks : {1, 2, 4})
    run_threads(ranks, [&](Communicator& c, int rank) {
      for (int stage = 0; stage < kStages; ++stage) {
        SCOPED_TRACE(testing::Message() << "stage " << stage << ", " << ranks << " ranks");
        Options o = options_of(stage, type);
        o.clip_norm = clip;
        o.micro_batches = ranks == 4 ? 1 : 3;
        train_both(c, rank, o, 2);
      }
    });
}
TEST(CudaZero, StagesGiveTheHostsBitsOfBfloat16) {
  MUSTER_NEEDS_GPUS(4);
  expect_the_hosts_bits(DataType::bfloat16, 0);
}
TEST(CudaZero, StagesGiveTheHostsBitsOfFloat16) {
  MUSTER_NEEDS_GPUS(4);
  expect_the_hosts_bits(DataType::float16, 0.05);
}
TEST(CudaZero, StagesGiveTheHostsBitsOfFloat32) {
  MUSTER_NEEDS_GPUS(4);
  expect_the_hosts_bits(DataType::float32, 0.05);
}

// Where micro-batches are added up before ranks, by whatever algorithms are chosen: a sum of two has one
// order.
TEST(CudaZero, TwoRanksGiveTheHostsBitsByAnyAlgorithm) {
  MUSTER_NEEDS_GPUS(2);
  run_threads(2, [&](Communicator& c, int rank) {
    for (int stage = 0; stage < kStages; ++stage) {
      SCOPED_TRACE(testing::Message() << "stage " << stage);
      Options o = options_of(stage, DataType::bfloat16, 77);
      o.micro_batches = 3;
      o.alignment = 8;
      o.prefetch = stage;
      train_both(c, rank, o, 2);
    }
  });
}

// Several steps are put on the stream while nobody looks at it.
TEST(CudaZero, StepsAreInTheOrderOfTheStream) {
  MUSTER_NEEDS_GPUS(2);
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  run_threads(2, [&](Communicator& c, int rank) {
    const Values start = test::initial_values(kOdd);
    for (int stage = 0; stage < kStages; ++stage)
      for (const DataType type : {DataType::bfloat16, DataType::float32}) {
        SCOPED_TRACE(testing::Message() << "stage " << stage << ", " << name_of(type));
        Options o = options_of(stage, type);
        o.micro_batches = 2;
        GpuTrainee at(rank);
        Optimizer host(c, test::tensors_of(start), o), gpu(c, test::tensors_of(start), o, at.stream());
        for (int s = 0; s < 3; ++s) {
          for (int k = 0; k < o.micro_batches; ++k) {
            for (const size_t t : backward(kOdd)) {
              std::vector<float> g(kOdd[t]);
              for (size_t i = 0; i < g.size(); ++i)
                g[i] = test::gradient_of(start[t][i], t, i, rank, 2 * s + k);
              host.gradient(t, test::rounded(g, type).data());
              gpu.use(t, Pass::backward);
              gpu.done(t);
              at.give(gpu, t, test::rounded(g, type));
            }
            host.end_micro_batch();
            gpu.end_micro_batch();
          }
          host.step();
          gpu.step();
        }
        expect_same_parameters(gpu, at, host, type);
      }
  });
}

TEST(CudaZero, ShardsWithReplicasGiveTheHostsBits) {
  MUSTER_NEEDS_GPUS(4);
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  run_threads(4, [&](Communicator& c, int rank) {
    Communicator host = c.split(rank / 2, rank), across = c.split(rank % 2, rank);
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << "stage " << stage);
      train_both(host, rank % 2, options_of(stage), 2, &across);
    }
  });
}

TEST(CudaZero, QuantisedGatherGivesTheHostsBits) {
  MUSTER_NEEDS_GPUS(2);
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  run_threads(2, [&](Communicator& c, int rank) {
    for (int stage = 1; stage < kStages; ++stage) {
      SCOPED_TRACE(testing::Message() << "stage " << stage);
      Options o = options_of(stage, stage == 2 ? DataType::float16 : DataType::bfloat16, 1 << 20);
      o.quantised_gather = true;
      train_both(c, rank, o, 2);
    }
  });
}

// By algorithms that send each byte once: DDP and ZeRO-2 the same, ZeRO-3 1.5 times as much, all of it by
// GPUs.
TEST(CudaZero, StepsSendWhatTheFormulaSays) {
  MUSTER_NEEDS_GPUS(3);
  for (const char* algorithm : {"ring", "direct"}) {
    const Variable forced("MUSTER_ALGO", algorithm);
    for (const int ranks : {2, 3})
      run_threads(ranks, [&](Communicator& c, int rank) {
        const Values start = test::initial_values(kOdd);
        std::vector<uint64_t> sent;
        for (int stage = 0; stage < kStages; ++stage) {
          Options o = options_of(stage);
          o.alignment = 32;
          GpuTrainee at(rank);
          Optimizer zero(c, test::tensors_of(start), o, at.stream());
          const BytesSent before = zero.bytes_sent();
          at.micro_batch(zero, kOdd, o.type, rank, 0, 1);
          zero.step();
          const BytesSent step = zero.bytes_sent() - before;
          sent.push_back(step.gpu);
          EXPECT_EQ(step.total(), step.gpu);
          EXPECT_EQ(step.gpu, step_traffic_bytes(zero.layout().padded(), ranks, stage))
              << algorithm << ", " << ranks << " ranks, stage " << stage;
        }
        EXPECT_EQ(sent[2], sent[0]);
        EXPECT_EQ(sent[3] * 2, sent[0] * 3);
      });
  }
}

TEST(CudaZero, TwoRanksOfAProcessOnOneGpuAreRefused) {
  MUSTER_NEEDS_GPUS(3);
  run_threads(4, [](Communicator& c, int rank) {
    const Values start = test::initial_values({16});
    Communicator shards = c.split(rank / 2, rank), across = c.split(rank % 2, rank);
    const GpuTrainee at(rank == 3 ? 0 : rank);
    const auto flat = outcome_of([&] { Optimizer(c, test::tensors_of(start), options_of(2), at.stream()); });
    EXPECT_EQ(flat.code, Result::invalid_usage);
    EXPECT_THAT(flat.text, HasSubstr("rank 0 and rank 3 are of one process and on one GPU"));
    EXPECT_THAT(outcome_of([&] {
                  Optimizer(shards, test::tensors_of(start), options_of(2), at.stream(), &across);
                }).text,
                HasSubstr("rank 0 of replica 0 and rank 1 of replica 1 are of one process"));
  });
}

TEST(CudaZero, OverflowIsSkippedByAllAlike) {
  MUSTER_NEEDS_GPUS(2);
  run_threads(2, [](Communicator& c, int rank) {
    for (int stage = 0; stage < kStages; ++stage) {
      const Values start = test::initial_values(kOdd);
      const Options o = options_of(stage, DataType::float16);
      GpuTrainee at(rank);
      Optimizer zero(c, test::tensors_of(start), o, at.stream());
      const auto before = at.parameter(zero, 3, kOdd[3], o.type, Pass::forward);
      std::vector<float> bad(kOdd[3], 1);
      if (rank == 1)
        bad[17] =
            stage % 2 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
      at.give(zero, 3, test::rounded(bad, o.type));
      zero.end_micro_batch();
      EXPECT_TRUE(zero.step().skipped) << "stage " << stage;
      EXPECT_EQ(zero.loss_scale(), 32768);
      EXPECT_EQ(at.parameter(zero, 3, kOdd[3], o.type, Pass::forward), before);
      at.micro_batch(zero, kOdd, o.type, rank, 0, zero.loss_scale());
      EXPECT_FALSE(zero.step().skipped);
      EXPECT_NE(at.parameter(zero, 3, kOdd[3], o.type, Pass::forward), before);
    }
  });
}

TEST(CudaZero, GoesOnFromACheckpointWithTheSameBits) {
  MUSTER_NEEDS_GPUS(2);
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  run_threads(2, [](Communicator& c, int rank) {
    const Values start = test::initial_values(kOdd);
    for (const auto& [stage, type] :
         {std::pair{1, DataType::float32}, {2, DataType::bfloat16}, {3, DataType::float16}}) {
      const Options o = options_of(stage, type);
      GpuTrainee at(rank);
      Optimizer one(c, test::tensors_of(start), o, at.stream()),
          other(c, test::tensors_of(start), o, at.stream());
      at.micro_batch(one, kOdd, type, rank, 0, one.loss_scale());
      one.step();
      const std::vector<StatePiece> from = one.state(), to = other.state();
      for (size_t p = 0; p < from.size(); ++p)
        for (const auto member :
             {&StatePiece::parameters, &StatePiece::first_moment, &StatePiece::second_moment}) {
          ASSERT_EQ(cudaMemcpyAsync(to[p].*member, from[p].*member, from[p].elements * sizeof(float),
                                    cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(at.stream().handle)),
                    cudaSuccess);
        }
      other.restore(one.progress());
      for (Optimizer* zero : {&one, &other}) {
        at.micro_batch(*zero, kOdd, type, rank, 1, zero->loss_scale());
        zero->step();
      }
      for (size_t t = 0; t < kOdd.size(); ++t)
        EXPECT_EQ(at.parameter(other, t, kOdd[t], type, Pass::forward),
                  at.parameter(one, t, kOdd[t], type, Pass::forward))
            << "stage " << stage << ", tensor " << t;
    }
  });
}

TEST(CudaZero, InitialValuesMayBeOnTheGpu) {
  MUSTER_NEEDS_GPUS(2);
  run_threads(2, [](Communicator& c, int rank) {
    GpuTrainee at(rank);
    const Values start = test::initial_values({100});
    cuda::DeviceMemory there(at.device(), 400);
    there.write(0, start[0].data(), 400);
    const Tensor tensor{reinterpret_cast<const float*>(there.data()), 100};
    Optimizer zero(c, {&tensor, 1}, options_of(3, DataType::float32), at.stream());
    EXPECT_EQ(at.parameter(zero, 0, 100, DataType::float32, Pass::forward),
              test::rounded(start[0], DataType::float32));
  });
}

TEST(CudaZero, MemoryElsewhereIsRefused) {
  MUSTER_NEEDS_GPUS(2);
  run_threads(2, [](Communicator& c, int rank) {
    const Values start = test::initial_values({16});
    GpuTrainee at(rank);
    Optimizer zero(c, test::tensors_of(start), options_of(2, DataType::float32), at.stream());
    const auto plain = outcome_of([&] { zero.gradient(0, start[0].data()); });
    EXPECT_EQ(plain.code, Result::invalid_argument);
    EXPECT_THAT(plain.text, HasSubstr("gradients of tensor 0 are plain host memory"));
    const cuda::DeviceMemory elsewhere(1 - at.device(), 64);
    EXPECT_THAT(outcome_of([&] { zero.gradient(0, elsewhere.data()); }).text,
                HasSubstr("memory of " + cuda::describe_device(1 - at.device())));
    at.micro_batch(zero, {16}, DataType::float32, rank, 0, 1);  // and it goes on
    zero.step();
  });
}

TEST(CudaZero, ARankThatLeavesIsAnErrorForTheOthers) {
  MUSTER_NEEDS_GPUS(3);
  for (const int stage : {0, 2, 3})
    run_threads(3, [&](Communicator& c, int rank) {
      const Values start = test::initial_values(kOdd);
      GpuTrainee at(rank);
      Optimizer zero(c, test::tensors_of(start), options_of(stage), at.stream());
      if (rank == 1) return;
      // The stream goes on when the error is known, which a later call says.
      const auto outcome = outcome_of([&] {
        for (;;) {
          at.micro_batch(zero, kOdd, DataType::bfloat16, rank, 0, 1);
          zero.step();
        }
      });
      EXPECT_EQ(outcome.code, Result::remote_error) << "stage " << stage << ": " << outcome.text;
    });
}

}  // namespace
}  // namespace muster::zero
