// Attention over a sequence that is spread over ranks, forward and backward, against attention in one piece.
#include "muster/sequence_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "muster/expert_parallel.h"
#include "muster/tensor_parallel.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::outcome_of;
using testing::HasSubstr;
using Rows = std::vector<double>;  // [tokens][kWidth]
constexpr size_t kWidth = 4;

Rows random_rows(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  Rows m(n * kWidth);
  for (double& x : m) x = std::uniform_real_distribution<double>(-1, 1)(random);
  return m;
}
double dot(const double* a, const double* b) { return std::inner_product(a, a + kWidth, b, 0.0); }
void add(double* to, const double* x, double times) {
  for (size_t i = 0; i < kWidth; ++i) to[i] += times * x[i];
}

struct Attention {
  Rows o, dq, dk, dv;
};

// Causal softmax attention of all tokens and its gradients for d(loss)/d(o) = g.
Attention in_one_piece(const Rows& q, const Rows& k, const Rows& v, const Rows& g) {
  const size_t n = q.size() / kWidth;
  Attention a = {Rows(q.size()), Rows(q.size()), Rows(q.size()), Rows(q.size())};
  for (size_t i = 0; i < n; ++i) {
    std::vector<double> p(i + 1);
    double total = 0;
    for (size_t j = 0; j <= i; ++j) total += p[j] = std::exp(dot(&q[i * kWidth], &k[j * kWidth]));
    double mean = 0;
    for (size_t j = 0; j <= i; ++j) {
      p[j] /= total;
      add(&a.o[i * kWidth], &v[j * kWidth], p[j]);
      add(&a.dv[j * kWidth], &g[i * kWidth], p[j]);
      mean += p[j] * dot(&g[i * kWidth], &v[j * kWidth]);
    }
    for (size_t j = 0; j <= i; ++j) {
      const double ds = p[j] * (dot(&g[i * kWidth], &v[j * kWidth]) - mean);
      add(&a.dq[i * kWidth], &k[j * kWidth], ds);
      add(&a.dk[j * kWidth], &q[i * kWidth], ds);
    }
  }
  return a;
}

Rows part_of(const Rows& a, Shard s) {
  return {a.begin() + static_cast<ptrdiff_t>(s.begin * kWidth), a.begin() + static_cast<ptrdiff_t>(s.end() * kWidth)};
}
void expect_close(const Rows& a, const Rows& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-12) << what << " " << i;
}

void ring_attention(Communicator& comm, int rank, size_t tokens) {
  const Rows q = random_rows(tokens, 1), k = random_rows(tokens, 2), v = random_rows(tokens, 3), g = random_rows(tokens, 4);
  const Attention want = in_one_piece(q, k, v, g);
  const Shard mine = shard_of(tokens, comm.size(), rank);
  const Rows my_q = part_of(q, mine), my_g = part_of(g, mine);
  Rows block = part_of(k, mine);  // keys, then values
  const Rows my_v = part_of(v, mine);
  block.insert(block.end(), my_v.begin(), my_v.end());
  const std::vector<size_t> counts = shard_counts(tokens, comm.size(), 2 * kWidth);

  // Sums so far relative to the greatest score so far, as blocks come.
  std::vector<double> most(mine.count, -INFINITY), total(mine.count, 0);
  Rows o(mine.count * kWidth);
  std::vector<int> order;
  ring_exchange(comm, block.data(), counts, DataType::float64, [&](int source, const void* p) {
    order.push_back(source);
    const Shard theirs = shard_of(tokens, comm.size(), source);
    const auto* bk = static_cast<const double*>(p);
    const double* bv = bk + theirs.count * kWidth;
    for (size_t i = 0; i < mine.count; ++i)
      for (size_t j = 0; j < theirs.count && theirs.begin + j <= mine.begin + i; ++j) {
        const double score = dot(&my_q[i * kWidth], bk + j * kWidth);
        if (score > most[i]) {
          const double shrink = std::exp(most[i] - score);
          total[i] *= shrink;
          for (size_t w = 0; w < kWidth; ++w) o[i * kWidth + w] *= shrink;
          most[i] = score;
        }
        total[i] += std::exp(score - most[i]);
        add(&o[i * kWidth], bv + j * kWidth, std::exp(score - most[i]));
      }
  });
  for (size_t i = 0; i < mine.count; ++i)
    for (size_t w = 0; w < kWidth; ++w) o[i * kWidth + w] /= total[i];
  expect_close(o, part_of(want.o, mine), "output");
  for (int i = 0; i < comm.size(); ++i) EXPECT_EQ(order[static_cast<size_t>(i)], (rank - i + comm.size()) % comm.size());

  Rows dq(mine.count * kWidth), dkv(2 * mine.count * kWidth);
  ring_exchange_backward(comm, block.data(), counts, DataType::float64, dkv.data(), DataType::float64, [&](int source, const void* p, void* gradient) {
    const Shard theirs = shard_of(tokens, comm.size(), source);
    const auto* bk = static_cast<const double*>(p);
    const double* bv = bk + theirs.count * kWidth;
    auto* dk = static_cast<double*>(gradient);
    double* dv = dk + theirs.count * kWidth;
    for (size_t i = 0; i < mine.count; ++i)
      for (size_t j = 0; j < theirs.count && theirs.begin + j <= mine.begin + i; ++j) {
        const double weight = std::exp(dot(&my_q[i * kWidth], bk + j * kWidth) - most[i]) / total[i];
        const double ds = weight * (dot(&my_g[i * kWidth], bv + j * kWidth) - dot(&my_g[i * kWidth], &o[i * kWidth]));
        add(dv + j * kWidth, &my_g[i * kWidth], weight);
        add(dk + j * kWidth, &my_q[i * kWidth], ds);
        add(&dq[i * kWidth], bk + j * kWidth, ds);
      }
  });
  expect_close(dq, part_of(want.dq, mine), "dq");
  Rows both = part_of(want.dk, mine);
  const Rows want_v = part_of(want.dv, mine);
  both.insert(both.end(), want_v.begin(), want_v.end());
  expect_close(dkv, both, "dk, dv");
}

TEST(RingExchange, AttentionLikeInOnePiece) {
  for (const int n : {1, 2, 3, 5})
    test::run_threads(n, [](Communicator& comm, int rank) {
      for (const size_t tokens : {2, 5, 12, 31}) ring_attention(comm, rank, tokens);  // 2: ranks without tokens
    });
}
TEST(RingExchange, AttentionBetweenProcesses) {
  test::run_process_ranks(3, [](Communicator& comm, int rank) { ring_attention(comm, rank, 20); });
}

// Blocks longer than what can be under way, while `use` is slow on one rank.
TEST(RingExchange, LongBlocks) {
  test::run_threads(3, [](Communicator& comm, int rank) {
    const std::vector<size_t> counts = {700000, 0, 900000};
    const std::vector<float> own(counts[static_cast<size_t>(rank)], static_cast<float>(rank + 1));
    std::vector<float> gradient(own.size());
    ring_exchange_backward(comm, own.data(), counts, DataType::float32, gradient.data(), DataType::float32, [&](int source, const void* block, void* g) {
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      for (size_t i = 0; i < counts[static_cast<size_t>(source)]; ++i) {
        ASSERT_EQ(static_cast<const float*>(block)[i], static_cast<float>(source + 1));
        static_cast<float*>(g)[i] += static_cast<float>(rank + 1) * static_cast<float>(i % 5);
      }
    });
    for (size_t i = 0; i < gradient.size(); ++i) ASSERT_EQ(gradient[i], 6.0f * static_cast<float>(i % 5)) << i;
  });
}

TEST(RingExchange, ErrorsLeaveNothingBehind) {
  test::run_threads(2, [](Communicator& comm, int rank) {
    const std::vector<size_t> counts = {3, 3}, wrong = {3};
    const std::vector<float> own(3, static_cast<float>(rank));
    const auto use = [](int, const void*) {};
    EXPECT_THAT(outcome_of([&] { ring_exchange(comm, own.data(), wrong, DataType::float32, use); }).text, HasSubstr("1 sizes of blocks"));
    EXPECT_THAT(outcome_of([&] { ring_exchange_backward(comm, own.data(), counts, DataType::float32, nullptr, DataType::float16, {}); }).text, HasSubstr("not in float16"));
    // What `use` throws comes out, behind the block that was on its way.
    EXPECT_THAT(outcome_of([&] {
                  ring_exchange(comm, own.data(), counts, DataType::float32, [](int, const void*) { throw Error(Result::internal_error, "mine"); });
                }).text,
                HasSubstr("mine"));
    int calls = 0;
    ring_exchange(comm, own.data(), counts, DataType::float32, [&](int source, const void* block) {
      ++calls;
      EXPECT_EQ(*static_cast<const float*>(block), static_cast<float>(source));
    });
    EXPECT_EQ(calls, 2);
  });
}

TEST(Heads, TokensAndHeadsChangePlaces) {
  for (const int n : {1, 2, 3, 4})
    test::run_threads(n, [n](Communicator& comm, int rank) {
      for (const HeadShape shape : {HeadShape{12, 12, 5}, HeadShape{7, 5, 3}, HeadShape{2, 9, 1}, HeadShape{9, 2, 2}, HeadShape{0, 4, 2}}) {
        const Shard tokens = shard_of(shape.tokens, n, rank), heads = shard_of(shape.heads, n, rank);
        const auto value = [&](size_t t, size_t h, size_t w) { return static_cast<int32_t>((t * shape.heads + h) * shape.width + w + 1); };
        std::vector<int32_t> by_tokens, by_heads, got(shape.tokens * heads.count * shape.width), back(tokens.count * shape.heads * shape.width);
        for (size_t t = 0; t < shape.tokens; ++t)
          for (size_t h = 0; h < shape.heads; ++h)
            for (size_t w = 0; w < shape.width; ++w) {
              if (tokens.has(t)) by_tokens.push_back(value(t, h, w));
              if (heads.has(h)) by_heads.push_back(value(t, h, w));
            }
        tokens_to_heads(comm, by_tokens.data(), got.data(), shape, DataType::int32);
        EXPECT_EQ(got, by_heads);
        heads_to_tokens(comm, got.data(), back.data(), shape, DataType::int32);
        EXPECT_EQ(back, by_tokens);
      }
    });
}

// Inside a group they would copy before anything has come, and the group would send what is freed by then.
TEST(HelpersThatComplete, AreRefusedInsideAGroup) {
  test::run_threads(2, [](Communicator& comm, int) {
    const HeadShape shape{4, 4, 2};
    std::vector<int32_t> from(16, 1), to(16, 7);
    const std::vector<size_t> counts{3, 3};
    ExpertParallel experts(comm, 2);
    const std::vector<int> chosen{0, 1};
    const std::vector<float> logits(2, 0.5f);
    const std::vector<int64_t> targets{0};
    std::vector<float> losses(1, 7), probabilities(2, 7);
    group_start();
    for (const std::function<void()>& call : std::vector<std::function<void()>>{
             [&] { tokens_to_heads(comm, from.data(), to.data(), shape, DataType::int32); },
             [&] { heads_to_tokens(comm, from.data(), to.data(), shape, DataType::int32); },
             [&] { ring_exchange(comm, from.data(), counts, DataType::int32, [](int, const void*) { FAIL(); }); },
             [&] { experts.route(chosen, 1, 8); },
             [&] { VocabularyParallel(comm, 4).cross_entropy(logits.data(), targets, losses.data(), probabilities.data()); }}) {
      const test::Outcome said = test::outcome_of(call);
      EXPECT_EQ(said.code, Result::invalid_usage);
      EXPECT_THAT(said.text, testing::HasSubstr("inside a group"));
    }
    group_end();
    EXPECT_EQ(to, std::vector<int32_t>(16, 7));
    tokens_to_heads(comm, from.data(), to.data(), shape, DataType::int32);  // the communicator is as good as before
    EXPECT_EQ(to, std::vector<int32_t>(16, 1));
  });
}

}  // namespace
}  // namespace muster
