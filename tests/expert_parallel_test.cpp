// Expert parallelism against experts in one place: forward, backward, capacity, and routes with nothing in them.
#include "muster/expert_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::outcome_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Numbers = std::vector<double>;
constexpr size_t kWidth = 3;

// Expert e: y = (e + 1) x^2, element by element.
double expert(size_t e, double x) { return static_cast<double>(e + 1) * x * x; }
double expert_slope(size_t e, double x) { return 2 * static_cast<double>(e + 1) * x; }

Numbers random_numbers(size_t n, std::mt19937& random) {
  Numbers m(n);
  for (double& x : m) x = std::uniform_real_distribution<double>(-1, 1)(random);
  return m;
}

// One rank's share of a layer, in one place.
struct Layer {
  size_t choices = 1, capacity = ExpertParallel::kUnlimited;
  std::vector<int> chosen;
  Numbers x, weights, g;             // tokens, choices, gradient of out
  Numbers out, gx, gweights;         // what must come
  std::vector<size_t> dropped;

  void work(size_t experts) {
    out.assign(x.size(), 0);
    gx.assign(x.size(), 0);
    gweights.assign(chosen.size(), 0);
    std::vector<size_t> taken(experts, 0);
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i] < 0) continue;
      const auto e = static_cast<size_t>(chosen[i]);
      if (taken[e]++ >= capacity) {
        dropped.push_back(i);
        continue;
      }
      for (size_t j = 0; j < kWidth; ++j) {
        const size_t at = i / choices * kWidth + j;
        out[at] += weights[i] * expert(e, x[at]);
        gx[at] += weights[i] * expert_slope(e, x[at]) * g[at];
        gweights[i] += expert(e, x[at]) * g[at];
      }
    }
  }
};

void expect_close(const Numbers& a, const Numbers& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-12) << what << " " << i;
}

void like_in_one_place(Communicator& comm, size_t experts, Layer layer) {
  layer.work(experts);
  ExpertParallel moe(comm, experts);
  const Shard own = moe.own_experts();
  moe.route(layer.chosen, layer.choices, layer.capacity);
  EXPECT_EQ(moe.dropped(), layer.dropped);
  ASSERT_EQ(moe.rows_of_experts().size(), own.count);

  Numbers rows(moe.rows() * kWidth), results(rows.size()), returned(moe.kept() * kWidth), out(layer.x.size());
  moe.dispatch(layer.x.data(), kWidth, rows.data());
  size_t at = 0;
  const auto for_rows = [&](const std::function<void(size_t expert, size_t at)>& f) {
    at = 0;
    for (size_t e = 0; e < own.count; ++e)
      for (size_t i = 0; i < moe.rows_of_experts()[e] * kWidth; ++i) f(own.begin + e, at++);
    EXPECT_EQ(at, rows.size());
  };
  for_rows([&](size_t e, size_t i) { results[i] = expert(e, rows[i]); });
  moe.combine(results.data(), layer.weights.data(), kWidth, returned.data(), out.data());
  expect_close(out, layer.out, "out");

  Numbers row_gradients(rows.size()), weight_gradients(layer.chosen.size()), gx(layer.x.size());
  moe.combine_backward(layer.g.data(), layer.weights.data(), returned.data(), kWidth, row_gradients.data(), weight_gradients.data());
  for_rows([&](size_t e, size_t i) { row_gradients[i] *= expert_slope(e, rows[i]); });
  moe.dispatch_backward(row_gradients.data(), kWidth, gx.data());
  expect_close(gx, layer.gx, "gradient of the tokens");
  expect_close(weight_gradients, layer.gweights, "gradient of the weights");
}

Layer random_layer(size_t tokens, size_t choices, int experts, std::mt19937& random) {
  Layer l;
  l.choices = choices;
  l.x = random_numbers(tokens * kWidth, random);
  l.g = random_numbers(tokens * kWidth, random);
  l.weights = random_numbers(tokens * choices, random);
  for (size_t i = 0; i < tokens * choices; ++i) l.chosen.push_back(static_cast<int>(random() % static_cast<unsigned>(experts + 1)) - 1);
  return l;
}

void random_routes(Communicator& comm, int rank) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 shared(seed), random(100 * seed + static_cast<unsigned>(rank));
    const int experts = 1 + static_cast<int>(shared() % 9);  // often fewer than ranks
    Layer l = random_layer(random() % 20, 1 + random() % 3, experts, random);
    if (seed % 3 == 1) l.capacity = random() % 4;
    if (seed % 4 == 2)
      for (int& e : l.chosen) e = experts - 1;  // all to one
    like_in_one_place(comm, static_cast<size_t>(experts), l);
  }
}
TEST(ExpertParallel, LikeInOnePlace) {
  for (const int n : {1, 2, 3, 5}) test::run_threads(n, random_routes);
}
TEST(ExpertParallel, LikeInOnePlaceBetweenProcesses) { test::run_process_ranks(3, random_routes); }

TEST(ExpertParallel, NothingToDo) {
  test::run_threads(4, [](Communicator& comm, int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    like_in_one_place(comm, 2, random_layer(0, 1, 2, random));              // no tokens anywhere; ranks 2 and 3 have no experts
    like_in_one_place(comm, 8, random_layer(rank == 3 ? 5 : 0, 2, 8, random));  // on one rank only
    Layer none = random_layer(6, 1, 8, random);
    none.chosen.assign(6, ExpertParallel::kNoExpert);
    like_in_one_place(comm, 8, none);
    Layer full = random_layer(6, 1, 8, random);
    full.capacity = 0;
    like_in_one_place(comm, 8, full);
  });
}

TEST(ExpertParallel, RowsLieByExpertThenRankThenToken) {
  test::run_threads(2, [](Communicator& comm, int rank) {
    ExpertParallel moe(comm, 3);  // two on rank 0, one on rank 1
    const std::vector<int> chosen = {1, 0, 1, 2};
    const std::vector<float> tokens = {rank * 10.f, rank * 10.f + 1, rank * 10.f + 2, rank * 10.f + 3};
    moe.route(chosen, 1, 1);
    EXPECT_THAT(moe.dropped(), ElementsAre(2));  // the second one for expert 1
    std::vector<float> rows(moe.rows());
    moe.dispatch(tokens.data(), 1, rows.data());
    if (rank == 0) {
      EXPECT_THAT(moe.rows_of_experts(), ElementsAre(2, 2));
      EXPECT_THAT(rows, ElementsAre(1, 11, 0, 10));
    } else {
      EXPECT_THAT(rows, ElementsAre(3, 13));
    }
  });
}

TEST(ExpertParallel, Capacity) {
  EXPECT_EQ(expert_capacity(1.0, 1024, 1, 64), 16u);
  EXPECT_EQ(expert_capacity(1.25, 1000, 2, 64), 40u);  // 39.06
  EXPECT_EQ(expert_capacity(2.0, 0, 2, 8), 0u);
  EXPECT_THAT(outcome_of([] { expert_capacity(-1, 8, 1, 8); }).text, HasSubstr("factor of -1"));
  EXPECT_THAT(outcome_of([] { expert_capacity(1, 8, 1, 0); }).text, HasSubstr("0 experts"));
}

TEST(ExpertParallel, StrangeRoutesAreRefusedOnAllRanks) {
  test::run_threads(3, [](Communicator& comm, int rank) {
    ExpertParallel moe(comm, 2);
    const auto refused = [&](const std::vector<int>& chosen, size_t choices) {
      const auto o = outcome_of([&] { moe.route(rank == 1 ? chosen : std::vector<int>{0, 1}, rank == 1 ? choices : 1); });
      EXPECT_EQ(o.code, Result::invalid_argument);
      return o.text;
    };
    EXPECT_THAT(refused({0, 2}, 1), HasSubstr("Rank 1 chose an expert that there isn't: experts are 0 to 1"));
    EXPECT_THAT(refused({-2}, 1), HasSubstr("Rank 1 chose"));
    EXPECT_THAT(refused({0, 1, 0}, 2), HasSubstr("Rank 1 gave a list"));
    EXPECT_THAT(refused({}, 0), HasSubstr("Rank 1 gave a list"));
    moe.route(std::vector<int>{0, 1}, 1);  // and it goes on
    EXPECT_EQ(moe.kept(), 2u);
    EXPECT_THAT(moe.dropped(), IsEmpty());
  });
  EXPECT_THAT(outcome_of([] {
                auto comms = Communicator::init_all(1);
                ExpertParallel(comms[0], 0);
              }).text,
              HasSubstr("at least one expert"));
}

}  // namespace
}  // namespace muster
