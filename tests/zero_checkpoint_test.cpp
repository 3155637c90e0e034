// Training that is stopped, kept by tensors, and goes on: with the same ranks, or with others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "support/outcome.h"
#include "support/ranks.h"
#include "zero_support.h"

namespace muster::zero {
namespace {

using muster::test::outcome_of;
using muster::test::run_threads;
using muster::test::Variable;
using test::backward;
using test::Sizes;
using test::Values;

const Sizes kSizes{1, 5, 7, 203, 0, 64, 58};

// As a file would have it: of each tensor the parameters and two moments, and how often each was written.
struct Checkpoint {
  std::array<Values, 3> values;
  std::vector<std::vector<int>> written;
  Progress progress;

  Checkpoint() {
    for (Values& v : values)
      for (const size_t n : kSizes) v.emplace_back(n);
    for (const size_t n : kSizes) written.emplace_back(n);
  }
  template <class Copy>
  static void each(Optimizer& zero, Copy&& copy) {
    for (const StatePiece& p : zero.state()) {
      copy(0, p, p.parameters);
      copy(1, p, p.first_moment);
      copy(2, p, p.second_moment);
    }
  }
  void save(Optimizer& zero) {
    progress = zero.progress();
    each(zero, [&](size_t which, const StatePiece& p, const float* from) {
      std::copy_n(from, p.elements, &values[which][p.tensor][p.begin]);
      if (which == 0)
        for (size_t i = 0; i < p.elements; ++i) ++written[p.tensor][p.begin + i];
    });
  }
  void load(Optimizer& zero) const {
    each(zero, [&](size_t which, const StatePiece& p, float* to) {
      std::copy_n(&values[which][p.tensor][p.begin], p.elements, to);
    });
    zero.restore(progress);
  }
};

struct Job {
  int ranks;
  Options options;
};
Job job(int ranks, int stage, DataType type, size_t bucket) {
  Options o;
  o.stage = stage;
  o.type = type;
  o.bucket = bucket;
  o.clip_norm = 0.5;
  o.adam.learning_rate = 0.01f;
  return {ranks, o};
}

// `steps` steps, from a checkpoint if there is one, into another. All ranks have the same gradients: their
// average is theirs with any power of two of ranks.
Values train(const Job& j, int steps, const Checkpoint* from, Checkpoint* to) {
  Values result;
  std::mutex mutex;
  run_threads(j.ranks, [&](Communicator& c, int rank) {
    const Values start = test::initial_values(kSizes);
    Optimizer zero(c, test::tensors_of(start), j.options);
    if (from) from->load(zero);
    for (int s = 0; s < steps; ++s) {
      test::run_micro_batch(zero, kSizes, j.options.type, 0, 0, zero.loss_scale(), backward(kSizes));
      zero.step();
    }
    if (to && (j.options.stage > 0 || rank == 0)) {
      const std::lock_guard lock(mutex);
      to->save(zero);
    }
    Values mine = test::parameters_of(zero, kSizes, j.options.type);
    if (rank == 0) result = std::move(mine);
  });
  return result;
}

TEST(ZeroCheckpoint, GoesOnWithOtherRanksStagesAndBuckets) {
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  for (const DataType type : {DataType::bfloat16, DataType::float16, DataType::float32}) {
    Checkpoint want;
    const Values in_one_go = train(job(2, 0, type, 1 << 20), 5, nullptr, &want);
    for (int stage = 0; stage < kStages; ++stage) {
      Checkpoint halfway, end;
      train(job(4, stage, type, 77), 3, nullptr, &halfway);
      EXPECT_EQ(halfway.progress.steps, 3);
      for (size_t t = 0; t < kSizes.size(); ++t)
        EXPECT_THAT(halfway.written[t], testing::Each(1)) << "stage " << stage << ", tensor " << t;
      const Values resumed = train(job(2, (stage + 1) % kStages, type, 300), 2, &halfway, &end);
      // The norm that gradients are clipped by is added up shard by shard.
      for (size_t t = 0; t < kSizes.size(); ++t)
        for (size_t i = 0; i < kSizes[t]; ++i) {
          ASSERT_NEAR(resumed[t][i], in_one_go[t][i], type == DataType::float32 ? 1e-6 : 1e-2)
              << "stage " << stage << ", " << name_of(type) << ", tensor " << t << ", " << i;
          for (size_t which = 0; which < 3; ++which)
            ASSERT_NEAR(end.values[which][t][i], want.values[which][t][i], 1e-4);
        }
      EXPECT_EQ(end.progress, want.progress);
    }
  }
}

TEST(ZeroCheckpoint, GoesOnWithTheSameBits) {
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  for (const DataType type : {DataType::bfloat16, DataType::float32})
    for (int stage = 0; stage < kStages; ++stage) {
      Checkpoint halfway;
      const Job j = job(3, stage, type, 77);
      const Values in_one_go = train(j, 4, nullptr, nullptr);
      train(j, 2, nullptr, &halfway);
      EXPECT_EQ(train(j, 2, &halfway, nullptr), in_one_go) << "stage " << stage << ", " << name_of(type);
    }
}

TEST(ZeroCheckpoint, WhatDoesNotFitIsRefused) {
  run_threads(2, [](Communicator& c, int rank) {
    const Values start = test::initial_values(kSizes);
    Options o;
    o.type = DataType::float16;
    Optimizer zero(c, test::tensors_of(start), o);
    const auto refused = [&](const Progress& p) { return outcome_of([&] { zero.restore(p); }); };
    EXPECT_EQ(refused({-1, 1, 0}).code, Result::invalid_argument);
    EXPECT_EQ(refused({1, 0, 0}).code, Result::invalid_argument);
    EXPECT_EQ(refused({1, 1, o.scale_growth}).code, Result::invalid_argument);
    const auto differs = refused({1 + rank, 1, 0});
    EXPECT_EQ(differs.code, Result::invalid_usage);
    EXPECT_THAT(differs.text, testing::HasSubstr("rank 1 has other progress to restore"));
    zero.use(0, Pass::forward);
    EXPECT_THAT(refused({1, 1, 0}).text, testing::HasSubstr("in use"));
    zero.done(0);
    zero.gradient(0, test::rounded(start[0], o.type).data());
    EXPECT_THAT(refused({1, 1, 0}).text, testing::HasSubstr("gradients of a step"));
    zero.end_micro_batch();
    EXPECT_EQ(refused({1, 1, 0}).code, Result::invalid_usage);
    zero.step();
    zero.restore({7, 8, 9});
    EXPECT_EQ(zero.progress(), (Progress{7, 8, 9}));
    EXPECT_EQ(zero.loss_scale(), 8);
  });
}

}  // namespace
}  // namespace muster::zero
