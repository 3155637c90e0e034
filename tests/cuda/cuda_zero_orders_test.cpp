// What the race checker looks at of training on GPUs: each kernel of the optimizer once. Of one rank, for the
// checker takes what the library's threads do, which aren't built for it, for races.
#include <gtest/gtest.h>

#include "cuda/gpu_training.h"
#include "cuda/gpus.h"
#include "support/ranks.h"

namespace muster::zero {
namespace {

using test::kOdd;
using test::options_of;

void two_steps(Communicator& c, const Options& o) {
  test::GpuTrainee at(0);
  const test::Values start = test::initial_values(kOdd);
  Optimizer zero(c, test::tensors_of(start), o, at.stream());
  for (int s = 0; s < 2; ++s) {
    for (int k = 0; k < o.micro_batches; ++k) at.micro_batch(zero, kOdd, o.type, 0, k, 1);
    EXPECT_GT(zero.step().norm.value_or(0), 0);
    if (s == 0) zero.restore(zero.progress());  // rounds the master copy
  }
  for (const size_t t : {size_t{0}, size_t{1}, size_t{2}})
    EXPECT_NE(test::exact(at.parameter(zero, t, kOdd[t], o.type, Pass::forward).data(), kOdd[t], o.type),
              start[t]);
}

TEST(CudaZeroOrders, EachKernel) {
  MUSTER_NEEDS_GPUS(1);
  muster::test::run_threads(1, [](Communicator& c, int) {
    for (int stage = 0; stage < kStages; ++stage) {
      SCOPED_TRACE(testing::Message() << "stage " << stage);
      Options o = options_of(stage);
      o.micro_batches = 2;
      o.clip_norm = 0.05;
      o.quantised_gather = stage >= 2;
      two_steps(c, o);
    }
  });
}

}  // namespace
}  // namespace muster::zero
