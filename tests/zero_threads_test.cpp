// Training while others are at work: threads that give gradients, reductions and gathers under way, ranks
// that are late.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "muster/zero.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "zero_support.h"

namespace muster::zero {
namespace {

using muster::test::run_threads;
using muster::test::Variable;
using test::backward;
using test::kOdd;
using test::options_of;
using test::Sizes;
using test::Values;

// Tensors come in an order that differs by rank, some never on some ranks, from two threads: buckets are
// reduced in one order.
TEST(Zero, GradientsInAnyOrderFromSeveralThreads) {
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  const Sizes sizes{30, 4, 50, 8, 90, 16, 70, 32};
  for (const int stage : {0, 1, 2, 3})
    run_threads(4, [&](Communicator& c, int rank) {
      const Values start = test::initial_values(sizes);
      Options o = options_of(stage, DataType::float32, 20);
      Optimizer shuffled(c, test::tensors_of(start), o), ordered(c, test::tensors_of(start), o);
      std::mt19937 random(static_cast<unsigned>(rank));
      const bool lacks = rank >= 2;  // tensor 5
      for (int s = 0; s < 3; ++s) {
        for (Optimizer* zero : {&shuffled, &ordered}) {
          Values gradients = test::parameters_of(*zero, sizes, o.type);
          for (size_t t = 0; t < sizes.size(); ++t)
            for (size_t i = 0; i < sizes[t]; ++i)
              gradients[t][i] = test::gradient_of(gradients[t][i], t, i, rank, 0);
          Sizes order = backward(sizes);
          if (zero == &shuffled) std::shuffle(order.begin(), order.end(), random);
          const std::vector<float> zeros(sizes[5]);
          const auto give = [&](size_t from, size_t to) {
            for (size_t k = from; k < to; ++k)
              if (order[k] != 5 || !lacks)
                zero->gradient(order[k], gradients[order[k]].data());
              else if (zero == &ordered)
                zero->gradient(5, zeros.data());
          };
          if (zero == &shuffled) {
            std::thread other([&] { give(0, 4); });
            give(4, 8);
            other.join();
          } else {
            give(0, 8);
          }
          zero->end_micro_batch();
          zero->step();
        }
      }
      EXPECT_EQ(test::parameters_of(shuffled, sizes, o.type), test::parameters_of(ordered, sizes, o.type))
          << "stage " << stage;
    });
}

// More buckets than buffers, and ranks of which one is late each time: no buffer is filled again before its
// reduction has ended.
TEST(Zero, BuffersAreNotReusedTooEarly) {
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  const Sizes sizes(8, 1000);
  Values results[2];
  for (const bool late : {false, true})
    run_threads(4, [&](Communicator& c, int rank) {
      const Values start = test::initial_values(sizes);
      Optimizer zero(c, test::tensors_of(start), options_of(2, DataType::bfloat16, 1000));
      ASSERT_EQ(zero.layout().buckets().size(), 8u);
      for (int s = 0; s < 2; ++s) {
        if (late && rank == s) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        test::run_micro_batch(zero, sizes, DataType::bfloat16, rank, 0, 1, backward(sizes));
        zero.step();
      }
      EXPECT_LE(zero.passing_bytes(), 3 * zero.layout().longest_bucket() * 2);
      if (rank == 0) results[late] = test::parameters_of(zero, sizes, DataType::bfloat16);
    });
  EXPECT_EQ(results[0], results[1]);
}

// New parameters are gathered behind step(), until they are used.
TEST(Zero, StepDoesNotWaitForThatOfOtherRanks) {
  for (int stage = 1; stage < kStages; ++stage) {
    std::atomic<bool> returned = false;
    run_threads(2, [&](Communicator& c, int rank) {
      const Values start = test::initial_values(kOdd);
      Optimizer zero(c, test::tensors_of(start), options_of(stage));
      test::run_micro_batch(zero, kOdd, DataType::bfloat16, rank, 0, 1, backward(kOdd));
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (rank == 1 && !returned && std::chrono::steady_clock::now() < until) std::this_thread::yield();
      EXPECT_TRUE(rank == 0 || returned) << "stage " << stage;
      zero.step();
      if (rank == 0) returned = true;
    });
  }
}

}  // namespace
}  // namespace muster::zero
