// Tensor parallelism against layers in one piece: forward, backward, and how often ranks communicate.
#include "muster/tensor_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "muster/mesh.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::outcome_of;
using testing::HasSubstr;
using Matrix = std::vector<double>;  // row-major

Matrix random_matrix(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  Matrix m(n);
  for (double& x : m) x = std::uniform_real_distribution<double>(-1, 1)(random);
  return m;
}
// [n][k] x [k][m]; the transposed forms are what backward needs.
Matrix product(const Matrix& a, const Matrix& b, size_t n, size_t k, size_t m) {
  Matrix c(n * m, 0);
  for (size_t i = 0; i < n; ++i)
    for (size_t l = 0; l < k; ++l)
      for (size_t j = 0; j < m; ++j) c[i * m + j] += a[i * k + l] * b[l * m + j];
  return c;
}
Matrix transposed(const Matrix& a, size_t n, size_t m) {
  Matrix t(a.size());
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < m; ++j) t[j * n + i] = a[i * m + j];
  return t;
}
Matrix columns(const Matrix& a, size_t n, size_t m, Shard s) {
  Matrix c;
  for (size_t i = 0; i < n; ++i) c.insert(c.end(), a.begin() + static_cast<ptrdiff_t>(i * m + s.begin), a.begin() + static_cast<ptrdiff_t>(i * m + s.end()));
  return c;
}
Matrix rows(const Matrix& a, size_t m, Shard s) {
  return {a.begin() + static_cast<ptrdiff_t>(s.begin * m), a.begin() + static_cast<ptrdiff_t>(s.end() * m)};
}
void expect_near(const Matrix& a, const Matrix& b, const std::string& what, double tolerance = 1e-12) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << what << " " << i;
}

// A pair of matrices, y = tanh(x A) B + x: what attention and the feed-forward part of a layer look like to communication.
struct Pair {
  size_t width, hidden;
  Matrix a, b;        // [width][hidden], [hidden][width]
  Matrix ga, gb;      // gradients
  Matrix x, h;        // whole input and tanh(x A), kept by forward
  Pair(size_t w, size_t n, unsigned seed) : width(w), hidden(n), a(random_matrix(w * n, seed)), b(random_matrix(n * w, seed + 1)) {}
  Pair(const Pair& whole, Shard s)
      : width(whole.width), hidden(s.count), a(columns(whole.a, whole.width, whole.hidden, s)), b(rows(whole.b, whole.width, s)) {}

  Matrix forward_part(const Matrix& input, size_t tokens) {
    x = input;
    h = product(x, a, tokens, width, hidden);
    for (double& v : h) v = std::tanh(v);
    return product(h, b, tokens, hidden, width);
  }
  Matrix backward_part(const Matrix& gy, size_t tokens) {
    gb = product(transposed(h, tokens, hidden), gy, hidden, tokens, width);
    Matrix gh = product(gy, transposed(b, hidden, width), tokens, width, hidden);
    for (size_t i = 0; i < gh.size(); ++i) gh[i] *= 1 - h[i] * h[i];
    ga = product(transposed(x, tokens, width), gh, width, tokens, hidden);
    return product(gh, transposed(a, width, hidden), tokens, hidden, width);
  }
};
Matrix sum(Matrix a, const Matrix& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

void layer_like_in_one_piece(Communicator& comm, int rank, TensorForm form, size_t tokens) {
  constexpr size_t kWidth = 6, kHidden = 10;
  std::vector<Pair> whole = {Pair(kWidth, kHidden, 1), Pair(kWidth, kHidden, 3)}, mine;  // attention, feed-forward
  const Shard hidden = shard_of(kHidden, comm.size(), rank);
  for (const Pair& p : whole) mine.emplace_back(p, hidden);
  Matrix x = random_matrix(tokens * kWidth, 5), g = random_matrix(tokens * kWidth, 6);

  TensorParallel tp(comm, DataType::float64, form);
  const Shard own = tp.own_tokens(tokens);
  Matrix my_x = rows(x, kWidth, own), my_g = rows(g, kWidth, own);
  for (size_t i = 0; i < 2; ++i) {
    x = sum(x, whole[i].forward_part(x, tokens));
    Matrix input(tokens * kWidth), y(own.count * kWidth);
    tp.enter(my_x.data(), input.data(), tokens, kWidth);
    tp.leave(mine[i].forward_part(input, tokens).data(), y.data(), tokens, kWidth);
    my_x = sum(my_x, y);
  }
  expect_near(my_x, rows(x, kWidth, own), "output");
  for (size_t i = 2; i-- > 0;) {
    g = sum(g, whole[i].backward_part(g, tokens));
    Matrix gy(tokens * kWidth), gx(own.count * kWidth);
    tp.leave_backward(my_g.data(), gy.data(), tokens, kWidth);
    tp.enter_backward(mine[i].backward_part(gy, tokens).data(), gx.data(), tokens, kWidth);
    my_g = sum(my_g, gx);
    expect_near(mine[i].ga, columns(whole[i].ga, kWidth, kHidden, hidden), "gradient of A");
    expect_near(mine[i].gb, rows(whole[i].gb, kWidth, hidden), "gradient of B");
  }
  expect_near(my_g, rows(g, kWidth, own), "gradient of the input");

  const TensorCalls two = form == TensorForm::replicated ? TensorCalls{2, 0, 0} : TensorCalls{0, 2, 2};
  EXPECT_EQ(tp.forward_calls(), two);
  EXPECT_EQ(tp.backward_calls(), two);
}

TEST(TensorParallel, LayerLikeInOnePiece) {
  for (const int t : {1, 2, 3, 4})
    test::run_threads(t, [](Communicator& comm, int rank) {
      for (const TensorForm form : {TensorForm::replicated, TensorForm::tokens_split})
        for (const size_t tokens : {1, 7, 8}) layer_like_in_one_piece(comm, rank, form, tokens);
    });
}
TEST(TensorParallel, LayerLikeInOnePieceBetweenProcesses) {
  test::run_process_ranks(2, [](Communicator& comm, int rank) {
    for (const TensorForm form : {TensorForm::replicated, TensorForm::tokens_split}) layer_like_in_one_piece(comm, rank, form, 7);
  });
}

// Sequences that the ranks don't divide: all of them cut alike, nothing is padded, nothing is lost.
TEST(TensorParallel, UnevenSequences) {
  for (const int t : {2, 4})
    test::run_threads(t, [t](Communicator& comm, int rank) {
      for (const size_t tokens : {size_t{7}, size_t{50341}}) {
        constexpr size_t kWidth = 3;
        TensorParallel tp(comm, DataType::int64, TensorForm::tokens_split);
        const Shard own = tp.own_tokens(tokens);
        std::vector<int64_t> part(tokens * kWidth), mine(own.count * kWidth), whole(tokens * kWidth);
        for (size_t i = 0; i < part.size(); ++i) part[i] = static_cast<int64_t>(i) * (rank + 1);
        tp.leave(part.data(), mine.data(), tokens, kWidth);
        tp.enter(mine.data(), whole.data(), tokens, kWidth);
        for (size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(whole[i], static_cast<int64_t>(i) * t * (t + 1) / 2) << tokens;
      }
    });
}

void vocabulary_like_in_one_piece(Communicator& comm, size_t size) {
  constexpr size_t kWidth = 5;
  constexpr double kFar = 2000;  // e^2000 has no number
  VocabularyParallel vocabulary(comm, size);
  const Shard mine = vocabulary.rows();
  std::vector<int64_t> tokens = {0, static_cast<int64_t>(size) - 1, 1 % static_cast<int64_t>(size), 0};

  // Embedding: exact, since all ranks but one add zeros.
  const Matrix table = random_matrix(size * kWidth, 11), my_table = rows(table, kWidth, mine);
  Matrix part(tokens.size() * kWidth), out(part.size());
  vocabulary.embed(my_table.data(), tokens, kWidth, part.data());
  TensorParallel(comm, DataType::float64, TensorForm::replicated).leave(part.data(), out.data(), tokens.size(), kWidth);
  const Matrix g = random_matrix(out.size(), 12);
  Matrix table_gradient(mine.count * kWidth, 1.0), want_gradient(size * kWidth, 1.0);
  vocabulary.embed_backward(tokens, kWidth, g.data(), table_gradient.data());
  for (size_t i = 0; i < tokens.size(); ++i)
    for (size_t j = 0; j < kWidth; ++j) {
      EXPECT_EQ(out[i * kWidth + j], table[static_cast<size_t>(tokens[i]) * kWidth + j]);
      want_gradient[static_cast<size_t>(tokens[i]) * kWidth + j] += g[i * kWidth + j];
    }
  EXPECT_EQ(table_gradient, rows(want_gradient, kWidth, mine));

  // Cross-entropy, with logits far from 0 and a target that is ignored.
  std::vector<int64_t> targets = tokens;
  targets.push_back(VocabularyParallel::kIgnored);
  const size_t n = targets.size();
  Matrix logits = random_matrix(n * size, 13);
  for (size_t j = 0; j < size; ++j) logits[size + j] = logits[size + j] * kFar + kFar;
  for (size_t j = 0; j < size; ++j) logits[2 * size + j] -= 2 * kFar;
  const Matrix weights = random_matrix(n, 14);
  Matrix my_logits = columns(logits, n, size, mine), losses(n), gradient(my_logits.size()), want_loss(n), want(n * size);
  vocabulary.cross_entropy(my_logits.data(), targets, losses.data(), my_logits.data());
  vocabulary.cross_entropy_backward(my_logits.data(), targets, weights.data(), gradient.data());
  for (size_t i = 0; i < n; ++i) {
    const auto row = logits.begin() + static_cast<ptrdiff_t>(i * size);
    const long double most = *std::max_element(row, row + static_cast<ptrdiff_t>(size));
    long double total = 0;
    for (size_t j = 0; j < size; ++j) total += std::exp(static_cast<long double>(row[static_cast<ptrdiff_t>(j)]) - most);
    if (targets[i] == VocabularyParallel::kIgnored) continue;
    want_loss[i] = static_cast<double>(std::log(total) + most - row[targets[i]]);
    for (size_t j = 0; j < size; ++j)
      want[i * size + j] = weights[i] * (static_cast<double>(std::exp(row[static_cast<ptrdiff_t>(j)] - most) / total) - (targets[i] == static_cast<int64_t>(j)));
  }
  expect_near(losses, want_loss, "loss");
  expect_near(gradient, columns(want, n, size, mine), "gradient");

  // float
  std::vector<float> single, single_losses(n);
  for (const double x : columns(logits, n, size, mine)) single.push_back(static_cast<float>(x));
  vocabulary.cross_entropy(single.data(), targets, single_losses.data(), single.data());
  expect_near(Matrix(single_losses.begin(), single_losses.end()), want_loss, "loss in float", 1e-4);
}

TEST(VocabularyParallel, LikeInOnePiece) {
  for (const int t : {1, 2, 3, 4})
    test::run_threads(t, [](Communicator& comm, int) {
      for (const size_t size : {1, 3, 8, 103}) vocabulary_like_in_one_piece(comm, size);  // 1, 3: ranks without rows
    });
}

TEST(VocabularyParallel, StrangeTokensAreRefused) {
  test::run_threads(2, [](Communicator& comm, int) {
    VocabularyParallel vocabulary(comm, 10);
    const std::vector<float> table(50);
    std::vector<float> out(10);
    for (const int64_t bad : {int64_t{10}, int64_t{-1}, VocabularyParallel::kIgnored}) {
      const std::vector<int64_t> tokens = {3, bad};
      const auto o = outcome_of([&] { vocabulary.embed(table.data(), tokens, 5, out.data()); });
      EXPECT_EQ(o.code, Result::invalid_argument);
      EXPECT_THAT(o.text, HasSubstr("Token 1 of the call is " + std::to_string(bad)));
    }
    const std::vector<int64_t> targets = {10};
    EXPECT_THAT(outcome_of([&] { vocabulary.cross_entropy(table.data(), targets, out.data(), out.data()); }).text, HasSubstr("Target 0 of the call is 10"));
  });
}

// Two stages of two ranks each: a tensor that both ranks have goes over in halves; one that differs is refused where it is
// checked, and goes whole.
void sends_between_stages(Communicator& world, int) {
  const Mesh mesh = Mesh::parse("tp=2,pp=2");
  MeshCommunicators comms(world, mesh);
  const int stage = comms.coordinate("pp"), place = comms.coordinate("tp");
  constexpr size_t kCount = 7;
  for (const bool check : {false, true})
    for (const size_t count : {kCount, size_t{1}, size_t{0}}) {
      std::vector<float> tensor(count);
      for (size_t i = 0; i < count && stage == 0; ++i) tensor[i] = 1.5f * static_cast<float>(i) + 1;
      if (stage == 0)
        send_sliced(comms["pp"], 1, comms["tp"], tensor.data(), count, DataType::float32, check);
      else
        recv_sliced(comms["pp"], 0, comms["tp"], tensor.data(), count, DataType::float32, check);
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(tensor[i], 1.5f * static_cast<float>(i) + 1);
    }
  std::vector<float> scattered(kCount, static_cast<float>(10 * place + 1));
  const auto o = outcome_of([&] {
    stage == 0 ? send_sliced(comms["pp"], 1, comms["tp"], scattered.data(), kCount, DataType::float32, true)
               : recv_sliced(comms["pp"], 0, comms["tp"], scattered.data(), kCount, DataType::float32, true);
  });
  EXPECT_EQ(o.code, Result::invalid_usage);
  EXPECT_THAT(o.text, HasSubstr("rank 1 of the sending tensor-parallel group has another one"));
  std::vector<float> got(kCount);
  stage == 0 ? comms["pp"].send(scattered.data(), kCount, DataType::float32, 1) : comms["pp"].recv(got.data(), kCount, DataType::float32, 0);
  if (stage == 1) {
    EXPECT_EQ(got, scattered);
  }
}
TEST(SlicedSend, OnlyForTensorsThatAllRanksHave) { test::run_threads(4, sends_between_stages); }
TEST(SlicedSend, BetweenProcesses) { test::run_process_ranks(4, sends_between_stages); }

}  // namespace
}  // namespace muster
