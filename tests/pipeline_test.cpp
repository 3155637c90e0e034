// Pipelines: schedules on paper against closed forms, and run over communicators against the model in one piece.
#include "muster/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::outcome_of;
using testing::HasSubstr;
constexpr PipelineCosts kCosts[] = {{1, 1}, {1, 2}, {2, 3}, {5, 1}};

TEST(PipelineSchedule, IdleShareIsTheFormula) {
  for (const PipelineCosts& costs : kCosts)
    for (int p = 1; p <= 9; ++p)
      for (int m = 1; m <= 20; ++m)
        for (const PipelineSchedule& s : {gpipe_schedule(p, m), one_forward_one_backward_schedule(p, m)}) {
          const PipelineTiming t = examine(s, costs);
          // idle / (p * makespan) = (p-1) / (m+p-1), in whole numbers
          ASSERT_EQ(t.idle * (m + p - 1), int64_t{p - 1} * p * t.makespan) << s.name << " p=" << p << " m=" << m << " " << costs.forward << ":" << costs.backward;
        }
}

TEST(PipelineSchedule, InterleavingDividesIdleTimeByTheChunks) {
  for (const PipelineCosts& costs : {PipelineCosts{1, 1}, PipelineCosts{1, 2}, PipelineCosts{2, 3}})
    for (int p = 2; p <= 8; ++p)
      for (int v = 2; v <= 4; ++v)
        for (int m = p; m <= 4 * p; m += p) {
          const PipelineTiming t = examine(interleaved_schedule(p, m, v), costs);
          // idle / busy = (p-1) / (v m): PTD-P, section 2.2.2
          const int64_t busy = int64_t{p} * t.makespan - t.idle;
          ASSERT_EQ(t.idle * v * m, int64_t{p - 1} * busy) << "p=" << p << " m=" << m << " v=" << v << " " << costs.forward << ":" << costs.backward;
        }
}

TEST(PipelineSchedule, ActivationsAlive) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 12; ++m) {
      const auto all = examine(gpipe_schedule(p, m)).peak_activations, few = examine(one_forward_one_backward_schedule(p, m)).peak_activations;
      for (int s = 0; s < p; ++s) {
        EXPECT_EQ(all[static_cast<size_t>(s)], m);
        EXPECT_EQ(few[static_cast<size_t>(s)], std::min(m, p - s));
      }
    }
  // Interleaved: (v-1) p + 2 (p-s-1) + 1 chunks' inputs on stage s.
  EXPECT_EQ(examine(interleaved_schedule(4, 16, 2)).peak_activations, (std::vector<int>{11, 9, 7, 5}));
}

TEST(PipelineSchedule, ManyStages) {
  const PipelineTiming t = examine(interleaved_schedule(64, 512, 8));
  EXPECT_DOUBLE_EQ(t.idle_share, 63.0 / (8 * 512 + 63));
}

TEST(PipelineSchedule, TextAndDrawing) {
  EXPECT_EQ(text(one_forward_one_backward_schedule(3, 4)),
            "stage 0: F0 F1 F2 B0 F3 B1 B2 B3\n"
            "stage 1: F0 F1 B0 F2 B1 F3 B2 B3\n"
            "stage 2: F0 B0 F1 B1 F2 B2 F3 B3\n");
  EXPECT_EQ(text(interleaved_schedule(2, 2, 2)),
            "stage 0: F0a F1a F0b F1b B0b B1b B0a B1a\n"
            "stage 1: F0a F1a F0b B0b F1b B1b B0a B1a\n");
  EXPECT_EQ(drawing(gpipe_schedule(2, 2)),
            "  0 | F0 F1 .  .  .  B0 -  B1 -\n"
            "  1 | .  F0 F1 B0 -  B1 -  .  .\n");
  const std::string picture = svg(gpipe_schedule(2, 2));
  EXPECT_THAT(picture, HasSubstr("2 stages, 2 micro-batches, 1 chunk: 33.3% idle"));
  size_t boxes = 0;
  for (size_t at = picture.find("<rect"); at != picture.npos; at = picture.find("<rect", at + 1)) ++boxes;
  EXPECT_EQ(boxes, 1u + 8u);
}

TEST(PipelineSchedule, WhatCannotRunIsRefused) {
  const auto refusal = [](const std::function<void(PipelineSchedule&)>& change) {
    PipelineSchedule s = one_forward_one_backward_schedule(2, 2);
    change(s);
    const auto o = outcome_of([&] { examine(s); });
    EXPECT_EQ(o.code, Result::invalid_argument);
    return o.text;
  };
  using enum PipelinePass;
  EXPECT_THAT(refusal([](auto& s) { s.steps[1].pop_back(); }), HasSubstr("Stage 1 of the pipeline's schedule never runs B1"));
  EXPECT_THAT(refusal([](auto& s) { s.steps[0][1] = {forward, 0, 0}; }), HasSubstr("runs F0 twice"));
  EXPECT_THAT(refusal([](auto& s) { std::swap(s.steps[1][0], s.steps[1][1]); }), HasSubstr("runs B0 before its forward pass"));
  EXPECT_THAT(refusal([](auto& s) { s.steps[0][0].micro_batch = 2; }), HasSubstr("there are 2 micro-batches"));
  EXPECT_THAT(refusal([](auto& s) { s.steps.pop_back(); }), HasSubstr("1 of its 2 stages"));
  // Stage 0 wants B0 before F1, stage 1 F1 before B0.
  EXPECT_THAT(refusal([](auto& s) {
                s.steps[0] = {{forward, 0, 0}, {backward, 0, 0}, {forward, 1, 0}, {backward, 1, 0}};
                s.steps[1] = {{forward, 0, 0}, {forward, 1, 0}, {backward, 0, 0}, {backward, 1, 0}};
              }),
              HasSubstr("stage 0 waits with B0 for B0 of stage 1"));
  EXPECT_THAT(outcome_of([] { interleaved_schedule(4, 6, 2); }).text, HasSubstr("multiple of the stages, such as 8"));
  EXPECT_THAT(outcome_of([] { gpipe_schedule(0, 1); }).text, HasSubstr("0 stages"));
  EXPECT_THAT(outcome_of([] { examine(gpipe_schedule(1, 1), {0, 1}); }).text, HasSubstr("cost 0 forward"));
}

// A model of whole numbers, so that any order of additions gives the same: part k makes w x + place of its input, repeated or
// cut to the size of its output.
using Numbers = std::vector<int64_t>;

struct ToyModel {
  std::function<size_t(int, int)> elements;
  std::vector<bool> empty;  // by part

  static int64_t weight(int part) { return part + 3; }
  static void load(int m, int64_t* x, size_t n) {
    for (size_t i = 0; i < n; ++i) x[i] = m * 1000 + static_cast<int64_t>(i % 997);
  }
  static void loss(int m, const int64_t* y, int64_t* g, size_t n) {
    for (size_t i = 0; i < n; ++i) g[i] = y[i] % 101 + m;
  }
  static void forward(int part, const int64_t* x, size_t nx, int64_t* y, size_t ny) {
    for (size_t i = 0; i < ny; ++i) y[i] = (nx == 0 ? 0 : weight(part) * x[i % nx] % 1000003) + static_cast<int64_t>(i % 13);
  }
  // Returns the weight's gradient.
  static int64_t backward(int part, const int64_t* x, size_t nx, const int64_t* gy, size_t ny, int64_t* gx) {
    int64_t gw = 0;
    std::fill_n(gx, nx, 0);
    for (size_t i = 0; i < ny && nx > 0; ++i) {
      gx[i % nx] = (gx[i % nx] + weight(part) * gy[i]) % 1000003;
      gw = (gw + x[i % nx] % 1000 * gy[i]) % 1000000007;
    }
    return gw;
  }

  // Gradients of all parts' weights, without a pipeline.
  Numbers in_one_piece(int parts, int micro_batches) const {
    Numbers gradients(static_cast<size_t>(parts), 0);
    for (int m = 0; m < micro_batches; ++m) {
      std::vector<Numbers> x;
      for (int b = 0; b <= parts; ++b) x.emplace_back(elements(m, b));
      load(m, x[0].data(), x[0].size());
      for (size_t k = 0; k < static_cast<size_t>(parts); ++k)
        empty[k] ? void(x[k + 1] = x[k]) : forward(static_cast<int>(k), x[k].data(), x[k].size(), x[k + 1].data(), x[k + 1].size());
      Numbers g(x.back().size());
      loss(m, x.back().data(), g.data(), g.size());
      for (size_t k = static_cast<size_t>(parts); k-- > 0;) {
        if (empty[k]) continue;
        Numbers before(x[k].size());
        gradients[k] = (gradients[k] + backward(static_cast<int>(k), x[k].data(), x[k].size(), g.data(), g.size(), before.data())) % 1000000007;
        g = before;
      }
    }
    return gradients;
  }
};

void expect_like_one_piece(Communicator& comm, int rank, const PipelineSchedule& s, const ToyModel& toy) {
  const int parts = s.stages * s.chunks;
  Numbers gradients(static_cast<size_t>(parts), 0);
  const auto part = [&](int chunk) { return chunk * s.stages + rank; };
  const auto numbers = [](const void* p) { return static_cast<const int64_t*>(p); };
  PipelineModel model;
  model.type = DataType::int64;
  if (rank == 0) model.elements = toy.elements;  // the others are told
  model.load = [&](int m, void* x) { ToyModel::load(m, static_cast<int64_t*>(x), toy.elements(m, 0)); };
  model.forward = [&](int c, int m, const void* x, void* y) {
    ASSERT_FALSE(toy.empty[static_cast<size_t>(part(c))]);
    ToyModel::forward(part(c), numbers(x), toy.elements(m, part(c)), static_cast<int64_t*>(y), toy.elements(m, part(c) + 1));
  };
  model.backward = [&](int c, int m, const void* x, const void* gy, void* gx) {
    int64_t& g = gradients[static_cast<size_t>(part(c))];
    g = (g + ToyModel::backward(part(c), numbers(x), toy.elements(m, part(c)), numbers(gy), toy.elements(m, part(c) + 1), static_cast<int64_t*>(gx))) % 1000000007;
  };
  model.loss = [&](int m, const void* y, void* g) { ToyModel::loss(m, numbers(y), static_cast<int64_t*>(g), toy.elements(m, parts)); };
  bool any_empty = false;
  for (int c = 0; c < s.chunks; ++c) {
    model.without_layers.push_back(toy.empty[static_cast<size_t>(part(c))]);
    any_empty |= model.without_layers.back();
  }
  const PipelineRun run = run_pipeline(comm, s, model);
  const Numbers want = toy.in_one_piece(parts, s.micro_batches);
  for (int c = 0; c < s.chunks; ++c)
    EXPECT_EQ(gradients[static_cast<size_t>(part(c))], want[static_cast<size_t>(part(c))]) << s.name << " p=" << s.stages << " part " << part(c);
  if (!any_empty) {
    EXPECT_EQ(run.peak_activations, examine(s).peak_activations[static_cast<size_t>(rank)]) << s.name;
  }
  if (s.stages > 1) {  // forward from all parts but the last, backward from all but the first
    const int ends = (rank == 0) + (rank == s.stages - 1);
    EXPECT_EQ(run.messages_sent, static_cast<uint64_t>((2 * s.chunks - ends) * s.micro_batches));
  }
}

ToyModel toy_of(int parts, const std::function<size_t(int, int)>& elements) { return {elements, std::vector<bool>(static_cast<size_t>(parts), false)}; }
size_t uneven(int m, int b) { return static_cast<size_t>((m * 7 + b * 3) % 11) * static_cast<size_t>(m % 3 == 2 ? 40 : 1); }  // also 0

void runs_all_schedules(Communicator& comm, int rank) {
  const int p = comm.size();
  for (const int m : {1, p, 2 * p, 2 * p + 1}) {
    expect_like_one_piece(comm, rank, gpipe_schedule(p, m), toy_of(p, uneven));
    expect_like_one_piece(comm, rank, one_forward_one_backward_schedule(p, m), toy_of(p, uneven));
    if (m % p == 0)
      for (const int v : {2, 3}) expect_like_one_piece(comm, rank, interleaved_schedule(p, m, v), toy_of(p * v, uneven));
  }
}
TEST(Pipeline, LikeTheModelInOnePiece) {
  for (const int p : {1, 2, 3, 5, 8}) test::run_threads(p, runs_all_schedules);
}
TEST(Pipeline, LikeTheModelInOnePieceBetweenProcesses) { test::run_process_ranks(4, runs_all_schedules); }

// Two stages with two chunks: the next stage is the previous one, too. Messages are longer than what can be under way, so a
// send returns only when its receiver is there, and sizes tell which is which.
TEST(Pipeline, TwoStagesWithChunksAndLongMessages) {
  const auto sizes = [](int m, int b) { return size_t{100000} + static_cast<size_t>(b) * 1000 + static_cast<size_t>(m); };
  const auto body = [&](Communicator& comm, int rank) {
    expect_like_one_piece(comm, rank, interleaved_schedule(2, 4, 2), toy_of(4, sizes));
    expect_like_one_piece(comm, rank, one_forward_one_backward_schedule(2, 4), toy_of(2, sizes));
  };
  test::run_threads(2, body);
  test::run_process_ranks(2, body);
}

TEST(Pipeline, StagesWithoutLayers) {
  const auto sizes = [](int m, int) { return static_cast<size_t>(m % 3) * 50; };
  test::run_threads(5, [&](Communicator& comm, int rank) {
    for (const size_t without : {0, 2, 4}) {
      for (const auto& s : {gpipe_schedule(5, 6), one_forward_one_backward_schedule(5, 6)}) {
        ToyModel toy = toy_of(5, sizes);
        toy.empty[without] = true;
        expect_like_one_piece(comm, rank, s, toy);
      }
    }
    for (const size_t without : {0, 3, 7, 9}) {
      ToyModel toy = toy_of(10, sizes);
      toy.empty[without] = true;
      expect_like_one_piece(comm, rank, interleaved_schedule(5, 5, 2), toy);
    }
    ToyModel none = toy_of(5, sizes);
    none.empty.assign(5, true);
    expect_like_one_piece(comm, rank, one_forward_one_backward_schedule(5, 3), none);
    // All see what is wrong before the first message.
    const auto o = outcome_of([&] {
      ToyModel toy = toy_of(5, [](int, int b) { return static_cast<size_t>(b); });
      toy.empty[3] = true;
      expect_like_one_piece(comm, rank, gpipe_schedule(5, 2), toy);
    });
    EXPECT_EQ(o.code, Result::invalid_argument);
    EXPECT_THAT(o.text, HasSubstr("Part 3 of the pipeline (stage 3, chunk 0) has no layers, but gets 3 elements"));
  });
}

// Any order that examine() lets pass: each stage takes one of the steps that can be taken, at random.
PipelineSchedule random_schedule(int stages, int micro_batches, int chunks, std::mt19937& random) {
  PipelineSchedule s = {"random", stages, micro_batches, chunks, std::vector<std::vector<PipelineStep>>(static_cast<size_t>(stages))};
  const int parts = stages * chunks;
  std::vector<std::pair<int, PipelineStep>> ready;
  for (int m = 0; m < micro_batches; ++m) ready.push_back({0, {PipelinePass::forward, m, 0}});
  while (!ready.empty()) {
    const size_t i = random() % ready.size();
    const auto [part, step] = ready[i];
    ready.erase(ready.begin() + static_cast<ptrdiff_t>(i));
    s.steps[static_cast<size_t>(part % stages)].push_back(step);
    const bool is_forward = step.pass == PipelinePass::forward;
    const bool turns = is_forward && part == parts - 1;
    const int next = turns ? part : part + (is_forward ? 1 : -1);
    if (next >= 0) ready.push_back({next, {turns ? PipelinePass::backward : step.pass, step.micro_batch, next / stages}});
  }
  return s;
}

TEST(Pipeline, AnyScheduleThatPassesRuns) {
  const auto sizes = [](int m, int b) { return size_t{100000} + static_cast<size_t>((m * 5 + b) % 7) * 1000; };  // 0.8 MB
  for (const int p : {2, 3, 4})
    test::run_threads(p, [&](Communicator& comm, int rank) {
      for (unsigned seed = 0; seed < 6; ++seed) {
        std::mt19937 random(seed);
        const int v = 1 + static_cast<int>(seed % 3);
        expect_like_one_piece(comm, rank, random_schedule(p, 3, v, random), toy_of(p * v, seed < 3 ? uneven : std::function<size_t(int, int)>(sizes)));
      }
    });
}

TEST(Pipeline, DifferencesAreFoundBeforeTheFirstMessage) {
  test::run_threads(3, [](Communicator& comm, int rank) {
    const auto different = outcome_of([&] {
      expect_like_one_piece(comm, rank, rank == 1 ? gpipe_schedule(3, 4) : one_forward_one_backward_schedule(3, 4), toy_of(3, uneven));
    });
    EXPECT_EQ(different.code, Result::invalid_usage);
    EXPECT_THAT(different.text, HasSubstr("Stages 0 and 1 of a pipeline have different schedules"));
    const auto missing = outcome_of([&] { run_pipeline(comm, gpipe_schedule(3, 4), PipelineModel()); });
    EXPECT_THAT(missing.text, HasSubstr("Stage 0 of a pipeline lacks a callback"));
    const auto size = outcome_of([&] { expect_like_one_piece(comm, rank, gpipe_schedule(2, 4), toy_of(2, uneven)); });
    EXPECT_THAT(size.text, HasSubstr("of 3 ranks: rank s is stage s"));
    expect_like_one_piece(comm, rank, gpipe_schedule(3, 2), toy_of(3, uneven));  // the communicator is as it was
  });
}

}  // namespace
}  // namespace muster
