// The example's language model: its gradients are those of its loss, and its parts make up the whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "columns.h"
#include "model.h"
#include "support/ranks.h"

namespace train {
namespace {

constexpr Shape kTiny{.vocabulary = 16, .context = 8, .width = 16, .heads = 4, .blocks = 2};
constexpr size_t kSequences = 2;

struct Text {
  std::vector<uint8_t> tokens, targets;
  Text() {
    for (size_t i = 0; i < kSequences * kTiny.context; ++i) {
      tokens.push_back(static_cast<uint8_t>(i * 7 % 16));
      targets.push_back(static_cast<uint8_t>((i * 5 + 3) % 16));
    }
  }
};

// Larger than a beginner's, so that no gradient is too small to be measured.
std::vector<float> parameters_of(const Part& part) {
  std::vector<float> p(part.size());
  part.initialize(p.data(), 7);
  for (const Tensor& t : part.tensors())
    if (t.name.find("gain") == t.name.npos)
      for (size_t i = 0; i < t.size; ++i) p[t.offset + i] *= 5;
  return p;
}

template <class Flat>
auto by_tensor(const Part& part, Flat& flat) {
  std::vector<decltype(flat.data())> pointers;
  for (const Tensor& t : part.tensors()) pointers.push_back(flat.data() + t.offset);
  return pointers;
}

struct Result {
  double loss = 0;
  std::map<std::string, std::vector<float>> gradients;
};

void add_gradients(const Part& part, const std::vector<float>& flat, Result& to) {
  for (const Tensor& t : part.tensors())
    to.gradients[t.name].assign(flat.begin() + static_cast<std::ptrdiff_t>(t.offset),
                                flat.begin() + static_cast<std::ptrdiff_t>(t.offset + t.size));
}

Result result_of(const Part& part) {
  const Text text;
  const std::vector<float> p = parameters_of(part);
  std::vector<float> g(part.size());
  Saved saved;
  Result r;
  r.loss = part.forward(by_tensor(part, p).data(), text.tokens.data(), text.targets.data(), nullptr,
                        kSequences, saved, nullptr);
  part.backward(by_tensor(part, p).data(), saved, nullptr, 1, by_tensor(part, g).data(), nullptr);
  add_gradients(part, g, r);
  return r;
}

Result whole() { return result_of(Part(kTiny, {})); }

void expect_near(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  float most = 0;
  for (const float x : a) most = std::max(most, std::abs(x));
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-5F * most + 1e-7F) << what << " " << i;
}

TEST(TrainModel, HasAsManyParametersAsTheFormulaSays) {
  for (const Shape& s :
       {kTiny, Shape{}, Shape{.vocabulary = 100, .context = 12, .width = 30, .heads = 5, .blocks = 3}})
    EXPECT_EQ(Part(s, {}).size(), s.parameters());
  EXPECT_THROW(Part(kTiny, {.columns = 3}), std::invalid_argument);
  EXPECT_THROW(Part(kTiny, {.stages = 3}), std::invalid_argument);
}

// Central differences in every tensor.
TEST(TrainModel, GradientsAreThoseOfTheLoss) {
  const Part part(kTiny, {});
  const Text text;
  std::vector<float> p = parameters_of(part);
  const Result r = whole();
  const auto loss = [&] {
    Saved saved;
    return part.forward(by_tensor(part, p).data(), text.tokens.data(), text.targets.data(), nullptr,
                        kSequences, saved, nullptr);
  };
  for (const Tensor& t : part.tensors()) {
    double most = 0, worst = 0;
    for (size_t i = 0; i < t.size; i += std::max<size_t>(1, t.size / 17)) {
      float& x = p[t.offset + i];
      const float kept = x, step = 0.01F;
      x = kept + step;
      const double up = loss();
      x = kept - step;
      const double slope = (up - loss()) / (2 * static_cast<double>(step));
      x = kept;
      most = std::max(most, std::abs(slope));
      worst = std::max(worst, std::abs(slope - static_cast<double>(r.gradients.at(t.name)[i])));
    }
    EXPECT_LE(worst, 0.005 * most + 1e-4) << t.name;
  }
}

TEST(TrainModel, StagesMakeUpTheWhole) {
  const Result expected = whole();
  const Text text;
  const Part first(kTiny, {.stage = 0, .stages = 2}), last(kTiny, {.stage = 1, .stages = 2});
  const std::vector<float> p0 = parameters_of(first), p1 = parameters_of(last);
  std::vector<float> g0(first.size()), g1(last.size()), between, back;
  Saved s0, s1;
  first.forward(by_tensor(first, p0).data(), text.tokens.data(), nullptr, nullptr, kSequences, s0, &between);
  Result r;
  r.loss = last.forward(by_tensor(last, p1).data(), nullptr, text.targets.data(), between.data(), kSequences,
                        s1, nullptr);
  last.backward(by_tensor(last, p1).data(), s1, nullptr, 1, by_tensor(last, g1).data(), &back);
  first.backward(by_tensor(first, p0).data(), s0, back.data(), 1, by_tensor(first, g0).data(), nullptr);
  EXPECT_EQ(r.loss, expected.loss);
  add_gradients(first, g0, r);
  add_gradients(last, g1, r);
  EXPECT_EQ(r.gradients, expected.gradients);  // bit for bit: it is the same arithmetic
}

// Where a rank's slice of a tensor lies in the whole one.
std::vector<float> slice_of(const std::vector<float>& whole, const std::string& name, size_t column,
                            size_t columns) {
  const size_t w = kTiny.width, mine = w / columns, inner = 4 * w / columns;
  const std::string kind = name.substr(name.find('.') + 1);
  std::vector<float> s;
  const auto take = [&](size_t rows, size_t of, size_t begin, size_t n) {
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = begin; c < begin + n; ++c) s.push_back(whole[r * of + c]);
  };
  if (kind == "qkv" || kind == "qkv_bias")
    take(kind == "qkv" ? 3 * w : 3, w, column * mine, mine);  // [rows, 3, width]
  else if (kind == "up" || kind == "up_bias")
    take(kind == "up" ? w : 1, 4 * w, column * inner, inner);
  else if (kind == "out")
    take(1, w * w, column * mine * w, mine * w);
  else if (kind == "down")
    take(1, 4 * w * w, column * inner * w, inner * w);
  else if (kind == "tokens")
    take(1, kTiny.vocabulary * w, column * kTiny.vocabulary / columns * w, kTiny.vocabulary / columns * w);
  else if (kind == "output")
    take(w, kTiny.vocabulary, column * kTiny.vocabulary / columns, kTiny.vocabulary / columns);
  else
    return whole;
  return s;
}

TEST(TrainModel, ColumnsMakeUpTheWhole) {
  const Result expected = whole();
  for (const muster::TensorForm form : {muster::TensorForm::replicated, muster::TensorForm::tokens_split})
    for (const size_t columns : {size_t{2}, size_t{4}})
      muster::test::run_threads(static_cast<int>(columns), [&](muster::Communicator& group, int rank) {
        const auto column = static_cast<size_t>(rank);
        SplitColumns with(group, form, kTiny.vocabulary);
        const Result r = result_of(Part(kTiny, {.column = column, .columns = columns, .with = &with}));
        EXPECT_NEAR(r.loss, expected.loss, 1e-5 * expected.loss);
        for (const auto& [name, gradient] : r.gradients)
          expect_near(slice_of(expected.gradients.at(name), name, column, columns), gradient,
                      name + " of rank " + std::to_string(rank));
      });
}

// Each unit is announced before it is used, in order, and backward in the opposite order.
TEST(TrainModel, TellsWhatItNeeds) {
  struct Log final : Part::Watch {
    std::vector<int> seen;
    void begins(size_t unit) override { seen.push_back(static_cast<int>(unit)); }
    void ended(size_t unit) override { seen.push_back(-static_cast<int>(unit)); }
  } log;
  const Part part(kTiny, {});
  const Text text;
  const std::vector<float> p = parameters_of(part);
  std::vector<float> g(part.size());
  Saved saved;
  part.forward(by_tensor(part, p).data(), text.tokens.data(), text.targets.data(), nullptr, kSequences, saved,
               nullptr, &log);
  part.backward(by_tensor(part, p).data(), saved, nullptr, 1, by_tensor(part, g).data(), nullptr, &log);
  EXPECT_THAT(log.seen, testing::ElementsAre(0, 0, 1, -1, 2, -2, 3, -3, 3, -3, 2, -2, 1, -1, 0, 0));
}

}  // namespace
}  // namespace train
