// The model's parameters, memory and time beside published numbers: exact ones exactly, rounded ones as they
// are rounded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "muster/types.h"
#include "parallel/layout_search.h"
#include "topology/file.h"
#include "topology/read.h"

namespace muster {
namespace {

using testing::HasSubstr;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::invalid_argument);
    return e.what();
  }
  return "";
}

Training training_of(const std::string& layout, int64_t global_batch, int64_t micro_batch = 1) {
  Training t;
  t.sizes = parse_layout(layout);
  t.global_batch = global_batch;
  t.micro_batch = micro_batch;
  return t;
}

TEST(Transformer, ParametersAreThoseOfThePublishedWeights) {
  EXPECT_EQ(total_parameters(transformer_preset("llama3-8b")), 8030261248);
  EXPECT_EQ(total_parameters(transformer_preset("llama3-70b")), 70553706496);
  EXPECT_EQ(total_parameters(transformer_preset("llama3-405b")), 405853388800);
  EXPECT_EQ(total_parameters(transformer_preset("mixtral-8x7b")), 46702792704);
  EXPECT_EQ(active_parameters(transformer_preset("mixtral-8x7b")), 12879925248);
  EXPECT_EQ(active_parameters(transformer_preset("llama3-8b")), 8030261248);
}

// P = 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)), which leaves out the last norm, 2 h. In billions as
// table 1 has them.
TEST(Transformer, ParametersAndFlopsByPtdpsFormulas) {
  const std::pair<const char*, double> rows[] = {
      {"gpt-1.7b", 1.7},   {"gpt-3.6b", 3.6},   {"gpt-7.5b", 7.5},     {"gpt-18.4b", 18.4},
      {"gpt-39.1b", 39.1}, {"gpt-76.1b", 76.1}, {"gpt-145.6b", 145.6}, {"gpt-310.1b", 310.1},
      {"gpt-530b", 529.6}, {"gpt-1t", 1008.0}};
  for (const auto& [name, billions] : rows) {
    const Transformer& m = transformer_preset(name);
    const double l = static_cast<double>(m.layers), h = static_cast<double>(m.hidden);
    const double s = static_cast<double>(m.sequence), V = static_cast<double>(m.vocabulary);
    const double formula = 12 * l * h * h * (1 + 13 / (12 * h) + (V + s) / (12 * l * h));
    EXPECT_NEAR(static_cast<double>(total_parameters(m) - 2 * m.hidden), formula, 1e-9 * formula) << name;
    EXPECT_NEAR(static_cast<double>(total_parameters(m)) / 1e9, billions, 0.051) << name;
    // F = 96 B s l h^2 (1 + s / (6 h) + V / (16 l h)) has each layer's forward twice.
    const double flops = 96 * s * l * h * h * (1 + s / (6 * h) + V / (16 * l * h));
    const double again = l * (layer_matrix_flops(m) + layer_attention_flops(m));
    EXPECT_NEAR(model_flops(m) + again, flops, 1e-9 * flops) << name;
  }
}

TEST(Transformer, SixNdIsWithinAFewPercentWhereSequencesAreShort) {
  for (const char* name : {"gpt3-175b", "llama3-70b", "llama3-405b"}) {
    const Transformer& m = transformer_preset(name);
    const double six_nd = 6 * static_cast<double>(active_parameters(m)) * static_cast<double>(m.sequence);
    EXPECT_NEAR(model_flops(m) / six_nd, 1.07, 0.08) << name;
  }
}

// ZeRO, table 1: GB per device of 7.5, 128 and 1000 billion parameters, without activations.
TEST(TrainingMemory, ZerosTable) {
  struct Row {
    int64_t billions10;
    int dp;
    double stage1, stage2, stage3;
  };
  const Row rows[] = {
      {75, 1, 120, 120, 120},          {75, 4, 52.5, 41.3, 30},        {75, 16, 35.6, 21.6, 7.5},
      {75, 64, 31.4, 16.6, 1.88},      {75, 256, 30.4, 15.4, 0.47},    {75, 1024, 30.1, 15.1, 0.12},
      {1280, 1, 2048, 2048, 2048},     {1280, 4, 896, 704, 512},       {1280, 16, 608, 368, 128},
      {1280, 64, 536, 284, 32},        {1280, 256, 518, 263, 8},       {1280, 1024, 513, 257, 2},
      {10000, 1, 16000, 16000, 16000}, {10000, 4, 7000, 5500, 4000},   {10000, 16, 4750, 2875, 1000},
      {10000, 64, 4187, 2218, 250},    {10000, 256, 4046, 2054, 62.5}, {10000, 1024, 4011, 2013, 15.6}};
  for (const Row& r : rows) {
    // A model of exactly so many parameters: one layer with h = 1000 has 4 h^2 of attention, 2 h of norms, 3
    // h of the MLP for each of its inner elements, V h twice outside, and a norm.
    Transformer m;
    m.layers = m.heads = 1;
    m.hidden = 1000;
    m.sequence = 1;
    m.ffn = 1;
    const int64_t wanted = r.billions10 * 100'000'000;
    const int64_t rest = wanted - 4'000'000 - 3'000 - 3'000;
    m.vocabulary = rest / 2000;
    ASSERT_EQ(total_parameters(m), wanted);
    Training t = training_of("dp=" + std::to_string(r.dp), r.dp);
    const double printed[] = {r.stage1, r.stage2, r.stage3};
    for (int stage = 1; stage <= 3; ++stage) {
      t.zero = stage;
      const double gb = memory_of_stage(m, t, 0).state() / 1e9, p = printed[stage - 1];
      EXPECT_NEAR(gb, p, std::max(0.0051 * p, 0.005)) << wanted << " dp " << r.dp << " stage " << stage;
    }
  }
}

TEST(TrainingMemory, LayersAreGathered) {
  const Transformer& m = transformer_preset("llama3-70b");
  const ParameterCount c = count_parameters(m);
  const double layer = static_cast<double>(std::max(c.attention + c.norms + c.mlp, c.embedding));
  Training t = training_of("dp=64", 64);
  t.zero = 1;
  EXPECT_EQ(memory_of_stage(m, t, 0).gathered, 0);
  t.zero = 2;
  EXPECT_EQ(memory_of_stage(m, t, 0).gathered, 2 * layer);
  t.zero = 3;
  EXPECT_EQ(memory_of_stage(m, t, 0).gathered, 6 * layer);
}

TEST(TrainingMemory, SeventyBillionOnEightyGigabytes) {
  const Transformer& m = transformer_preset("llama3-70b");
  EXPECT_NEAR(total_state(m) / 1e12, 1.13, 0.005);
  EXPECT_EQ(least_devices(m, 80.0 * (1 << 30)), 14);
  Training t = training_of("dp=8", 8);
  t.zero = 3;
  EXPECT_GT(peak_memory(m, t).use.state(), 80.0 * (1 << 30));
  t.sizes.dp = t.global_batch = 16;
  EXPECT_LT(peak_memory(m, t).use.state(), 80.0 * (1 << 30));
}

// Korthikanti et al., table 2.
TEST(TrainingMemory, ActivationsByTheFormulas) {
  const Transformer& m = transformer_preset("gpt3-175b");
  const double s = 2048, h = 12288, a = 96, b = 4;
  Training t = training_of("dp=1", 4, 4);
  t.recompute = Recompute::none;
  EXPECT_DOUBLE_EQ(layer_activations(m, t), s * b * h * (34 + 5 * a * s / h));
  t.sizes.tp = 8;
  EXPECT_DOUBLE_EQ(layer_activations(m, t), s * b * h / 8 * (34 + 5 * a * s / h));
  t.sequence_parallel = false;
  EXPECT_DOUBLE_EQ(layer_activations(m, t), s * b * h * (10 + 24.0 / 8 + 5 * a * s / (8 * h)));
  t.recompute = Recompute::selective;
  EXPECT_DOUBLE_EQ(layer_activations(m, t), s * b * h * (10 + 24.0 / 8));
  t.recompute = Recompute::full;
  EXPECT_DOUBLE_EQ(layer_activations(m, t), s * b * h * 2);
  t.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(layer_activations(m, t), s * b * h * 2 / 8);
  // Contexts split the sequence of queries, not of keys.
  t.sizes.cp = 2;
  t.recompute = Recompute::none;
  EXPECT_DOUBLE_EQ(layer_activations(m, t), s * b * h / 16 * (34 + 5 * a * s / h));
}

TEST(TrainingMemory, TheFirstStageKeepsTheMicroBatchesUnderWay) {
  const Transformer& m = transformer_preset("gpt3-175b");
  Training t = training_of("tp=8,pp=8", 64);
  const double layer = layer_activations(m, t);
  EXPECT_DOUBLE_EQ(memory_of_stage(m, t, 0).activations, layer * 96);
  EXPECT_DOUBLE_EQ(memory_of_stage(m, t, 6).activations, layer * 24);
  t.interleave = 3;
  EXPECT_NEAR(memory_of_stage(m, t, 0).activations, layer * 96 * (1 + 7.0 / (8 * 3)), 1);
  t.global_batch = 8;
  EXPECT_NEAR(memory_of_stage(m, t, 0).activations, layer * 96, 1);  // no more than there are
}

TEST(TrainingMemory, StagesHaveAllParametersBetweenThem) {
  for (const char* name : {"llama3-405b", "llama3-8b", "mixtral-8x7b"}) {
    const Transformer& m = transformer_preset(name);
    Training t = training_of(m.layers == 126 ? "pp=16" : "pp=4", 16);
    int64_t sum = 0, layers = 0;
    for (int stage = 0; stage < t.sizes.pp; ++stage) {
      sum += parameters_of_stage(m, t, stage).sum();
      layers += layers_of_stage(m, t, stage);
    }
    EXPECT_EQ(sum, total_parameters(m)) << name;
    EXPECT_EQ(layers, m.layers) << name;
  }
  const Transformer& m = transformer_preset("llama3-405b");
  const Training t = training_of("tp=8,pp=16,dp=128", 2048);
  check(m, t);
  EXPECT_EQ(layers_of_stage(m, t, 0), 7);
  EXPECT_EQ(layers_of_stage(m, t, 1), 8);
  EXPECT_EQ(layers_of_stage(m, t, 15), 7);
}

TEST(TrainingMemory, ExpertsAreShardedAmongThoseThatHaveTheSame) {
  const Transformer& m = transformer_preset("mixtral-8x7b");
  Training t = training_of("ep=8,dp=4", 32);
  check(m, t);
  const StageParameters p = parameters_of_stage(m, t, 0);
  EXPECT_EQ(p.experts, 32 * 3 * int64_t{4096} * 14336);
  t.zero = 1;
  const StageMemory u = memory_of_stage(m, t, 0);
  EXPECT_DOUBLE_EQ(u.master,
                   4 * (std::ceil(static_cast<double>(p.dense) / 32) + static_cast<double>(p.experts) / 4));
  EXPECT_DOUBLE_EQ(u.weights, 2.0 * static_cast<double>(p.sum()));
}

TEST(TrainingLayout, WhatDoesNotFitIsRefusedWithTheNumbers) {
  const Transformer& m = transformer_preset("llama3-70b");
  const auto refusal = [&](const std::string& layout, int64_t batch,
                           const std::function<void(Training&)>& change = {}) {
    return error_of([&] {
      Training t = training_of(layout, batch);
      if (change) change(t);
      check(m, t);
    });
  };
  EXPECT_EQ(refusal("tp=8,pp=4,dp=2", 16), "");
  EXPECT_THAT(refusal("tp=7", 16), HasSubstr("tp = 7 doesn't divide 64 heads"));
  EXPECT_THAT(refusal("pp=7", 16), HasSubstr("pp = 7 doesn't divide 80 layers"));
  EXPECT_THAT(refusal("dp=3", 16), HasSubstr("a multiple of 3 is needed"));
  EXPECT_THAT(refusal("dp=2", 0), HasSubstr("a global batch of 0 sequences"));
  EXPECT_THAT(refusal("ep=2", 16), HasSubstr("the model has no experts"));
  EXPECT_THAT(refusal("cp=3", 16), HasSubstr("doesn't divide a sequence of 8192"));
  EXPECT_THAT(refusal("pp=4", 16, [](Training& t) { t.zero = 4; }), HasSubstr("ZeRO stage 4"));
  EXPECT_THAT(refusal("pp=1", 16, [](Training& t) { t.interleave = 2; }), HasSubstr("pp = 1"));
  EXPECT_THAT(refusal("pp=4", 6, [](Training& t) { t.interleave = 2; }), HasSubstr("multiple of pp = 4"));
  EXPECT_THAT(refusal("tp=8", 16, [](Training& t) { t.micro_batch = -1; }), HasSubstr("micro-batch -1"));
  EXPECT_NE(refusal("tp=", 16), "");
  EXPECT_NE(refusal("tp=-2", 16), "");
  EXPECT_NE(refusal("tp=2,tp=4", 16), "");
  EXPECT_THAT(refusal("xp=2", 16), HasSubstr("'xp' is no axis"));
  EXPECT_THAT(refusal("pp=2,tp=2", 16), HasSubstr("the order tp, cp, ep, pp, dp"));
  EXPECT_THAT(error_of([] { transformer_preset("llama3-70"); }), HasSubstr("did you mean llama3-70b?"));
  Transformer bad = m;
  bad.layers = -3;
  EXPECT_THAT(error_of([&] { check(bad); }), HasSubstr("layers = -3"));
  bad = m;
  bad.heads = 60;
  EXPECT_THAT(error_of([&] { check(bad); }), HasSubstr("60 heads don't divide a hidden size of 8192"));
}

topology::Cluster cluster_of(const std::string& ready, int hosts) {
  return topology::read_topology("{\"muster_cluster\": 1, \"hosts\": [{\"count\": " + std::to_string(hosts) +
                                     ", \"name\": \"n\", \"ready\": \"" + ready + "\"}]}",
                                 "cluster.json");
}

// A published run, and how far the estimate may be from it. Nothing is fitted to them: the share of the peak
// is the GPU's default.
struct PublishedRun {
  const char* model;
  const char* layout;
  const char* host;  // 8 GPUs each
  int64_t global_batch, micro_batch;
  int interleave;
  Recompute recompute;
  bool sequence_parallel;
  int64_t sequence;
  double published, tolerance;
};

TrainingEstimate estimate_of(const PublishedRun& r, int zero, bool overlap) {
  Transformer m = transformer_preset(r.model);
  m.sequence = r.sequence;
  Training t = training_of(r.layout, r.global_batch, r.micro_batch);
  t.interleave = r.interleave;
  t.recompute = r.recompute;
  t.sequence_parallel = r.sequence_parallel;
  t.zero = zero;
  t.overlap = overlap;
  t.gradient_bytes = 4;
  const topology::Cluster c = cluster_of(r.host, static_cast<int>(t.sizes.ranks() / 8));
  GroupPrices prices(c, t.sizes.ranks(), Constants::built_in());
  return estimate_training(
      m, t, gpu_spec(c.machine_of(0).gpu(c.machine_of(0).all(topology::Kind::gpu)[0]).model), prices);
}

// Seconds of an iteration (Korthikanti et al., tables 3 and 5, and section 6.3 of eight copies whose
// gradients aren't overlapped).
TEST(TrainingEstimate, KorthikantisIterations) {
  const Recompute full = Recompute::full, part = Recompute::selective;
  for (const PublishedRun& r :
       {PublishedRun{"gpt-22b", "tp=8", "dgx-a100", 4, 4, 1, full, false, 2048, 1.42, 0.25},
        PublishedRun{"gpt-22b", "tp=8", "dgx-a100", 4, 4, 1, part, true, 2048, 1.10, 0.25},
        PublishedRun{"gpt3-175b", "tp=8,pp=8", "dgx-a100", 64, 1, 3, full, false, 2048, 18.13, 0.12},
        PublishedRun{"gpt3-175b", "tp=8,pp=8", "dgx-a100", 64, 1, 3, part, true, 2048, 13.75, 0.12},
        PublishedRun{"gpt-530b", "tp=8,pp=35", "dgx-a100", 280, 1, 3, full, false, 2048, 49.05, 0.05},
        PublishedRun{"gpt-530b", "tp=8,pp=35", "dgx-a100", 280, 1, 3, part, true, 2048, 37.83, 0.05},
        PublishedRun{"gpt-530b", "tp=8,pp=35,dp=8", "dgx-a100", 2240, 1, 3, part, true, 2048, 39.15, 0.05},
        PublishedRun{"gpt-1t", "tp=8,pp=64", "dgx-a100", 512, 1, 1, full, false, 2048, 94.42, 0.08},
        PublishedRun{"gpt-1t", "tp=8,pp=64", "dgx-a100", 512, 1, 1, part, true, 2048, 71.49, 0.08}}) {
    const TrainingEstimate e = estimate_of(r, 0, false);
    const double s = e.time.total();
    EXPECT_NEAR(s, r.published, r.tolerance * r.published) << r.model << " " << name_of(r.recompute);
  }
}

// Model TFLOP/s per GPU (Llama 3 report, table 4; dp of the last row by its 16,384 GPUs). Nothing was
// recomputed, with fused attention; the chunks per stage aren't printed: one layer each.
TEST(TrainingEstimate, LlamasTable) {
  for (const PublishedRun& r : {PublishedRun{"llama3-405b", "tp=8,pp=16,dp=64", "dgx-h100", 2048, 1, 8,
                                             Recompute::selective, true, 8192, 430, 0.06},
                                PublishedRun{"llama3-405b", "tp=8,pp=16,dp=128", "dgx-h100", 2048, 1, 8,
                                             Recompute::selective, true, 8192, 400, 0.06},
                                PublishedRun{"llama3-405b", "tp=8,cp=16,pp=16,dp=8", "dgx-h100", 128, 1, 8,
                                             Recompute::selective, true, 131072, 380, 0.06}}) {
    const TrainingEstimate e = estimate_of(r, 1, true);
    EXPECT_NEAR(e.model_tflops, r.published, r.tolerance * r.published) << r.layout;
  }
}

// TFLOP/s per GPU with what is recomputed (PTD-P, table 1). The share of the peak was measured on large
// layers, which the first rows haven't. Micro-batches and chunks aren't printed.
TEST(TrainingEstimate, PtdpsTable) {
  const Recompute full = Recompute::full;
  for (const PublishedRun& r :
       {PublishedRun{"gpt-1.7b", "dp=32", "dgx-a100", 512, 4, 1, full, false, 2048, 137, 0.6},
        PublishedRun{"gpt-3.6b", "tp=2,dp=32", "dgx-a100", 512, 4, 1, full, false, 2048, 138, 0.45},
        PublishedRun{"gpt-7.5b", "tp=4,dp=32", "dgx-a100", 512, 4, 1, full, false, 2048, 142, 0.2},
        PublishedRun{"gpt-18.4b", "tp=8,dp=32", "dgx-a100", 1024, 4, 1, full, false, 2048, 135, 0.2},
        PublishedRun{"gpt-39.1b", "tp=8,pp=2,dp=32", "dgx-a100", 1536, 1, 1, full, false, 2048, 138, 0.2},
        PublishedRun{"gpt-76.1b", "tp=8,pp=4,dp=32", "dgx-a100", 1792, 1, 1, full, false, 2048, 140, 0.2},
        PublishedRun{"gpt-145.6b", "tp=8,pp=8,dp=24", "dgx-a100", 2304, 1, 1, full, false, 2048, 148, 0.2},
        PublishedRun{"gpt-310.1b", "tp=8,pp=16,dp=15", "dgx-a100", 2160, 1, 1, full, false, 2048, 155, 0.15},
        PublishedRun{"gpt-530b", "tp=8,pp=35,dp=9", "dgx-a100", 2520, 1, 1, full, false, 2048, 163, 0.1},
        PublishedRun{"gpt-1t", "tp=8,pp=64,dp=6", "dgx-a100", 3072, 1, 1, full, false, 2048, 163, 0.1}}) {
    const TrainingEstimate e = estimate_of(r, 0, false);
    EXPECT_NEAR(e.hardware_tflops, r.published, r.tolerance * r.published) << r.model;
  }
}

// A step is its parts; each time a layout gives up something, what it pays for with grows.
TEST(TrainingEstimate, TrafficIsThatOfTheFormulas) {
  const PublishedRun r{"llama3-8b",          "tp=2,dp=8", "dgx-h100", 32, 2, 1,
                       Recompute::selective, true,        8192,       0,  0};
  const Transformer& m = transformer_preset(r.model);
  const double parameters =
      static_cast<double>(parameters_of_stage(m, training_of(r.layout, 32, 2), 0).sum());
  const auto sent = [&](int zero, const char* axis) {
    double bytes = 0;
    for (const Traffic& t : estimate_of(r, zero, true).traffic)
      if (t.axis == axis) bytes += t.near_bytes + t.far_bytes;
    return bytes;
  };
  // float32 gradients and 2-byte weights: 4 * 2 (N-1)/N Psi and so on; of 2 micro-batches from stage 2 on.
  EXPECT_NEAR(sent(0, "dp"), parameters * 7 / 8 * 8, 1e-6 * parameters);
  EXPECT_NEAR(sent(1, "dp"), parameters * 7 / 8 * (8 + 2), 1e-6 * parameters);
  EXPECT_NEAR(sent(2, "dp"), parameters * 7 / 8 * (2 * 4 + 2), 1e-6 * parameters);
  EXPECT_NEAR(sent(3, "dp"), parameters * 7 / 8 * (2 * 4 + 2 * 2 * 2), 1e-6 * parameters);
  // Of a layer and micro-batch 4 all-gathers, 4 reduce-scatters, and 2 all-gathers more; of both ends one
  // pair more.
  const double block = 2.0 * 8192 * 4096 * 2 / 2;
  EXPECT_NEAR(sent(0, "tp"), 2 * block * (32 * 10 + 2 * 2), 1);
}

TEST(TrainingEstimate, LinksAndBounds) {
  const PublishedRun run{"llama3-8b",          "tp=8,dp=2", "dgx-h100", 16, 1, 1,
                         Recompute::selective, true,        8192,       0,  0};
  const TrainingEstimate e = estimate_of(run, 0, true);
  EXPECT_EQ(e.bound, "computation");
  EXPECT_EQ(e.link_bound, "NVLink");
  EXPECT_EQ(e.time.idle, 0);
  // Across hosts tensor parallelism is bound by the network.
  PublishedRun across = run;
  across.layout = "tp=16";
  const TrainingEstimate a = estimate_of(across, 0, true);
  EXPECT_EQ(a.bound, "tensor-parallel communication");
  EXPECT_NE(a.link_bound, "NVLink");
  EXPECT_GT(a.time.total(), 1.5 * e.time.total());
  // 4 of 8 ranks of each host: pipeline neighbours in one host don't use the network, those of two do.
  for (const auto& [layout, link] :
       {std::pair{"tp=2,pp=4,dp=2", "NVLink"}, std::pair{"tp=4,pp=4", "InfiniBand"}}) {
    PublishedRun p = run;
    p.layout = layout;
    for (const Traffic& t : estimate_of(p, 0, true).traffic)
      EXPECT_TRUE(t.axis != "pp" || t.link == link) << layout << " " << t.link;
  }
  // The bubble by its formula where stages are alike but for the head.
  PublishedRun p = run;
  p.model = "gpt3-175b";
  p.layout = "tp=8,pp=8";
  p.sequence = 2048;
  EXPECT_NEAR(estimate_of(p, 0, true).idle_fraction, 7.0 / (16 + 7), 0.015);
  p.interleave = 3;
  EXPECT_NEAR(estimate_of(p, 0, true).idle_fraction, 7.0 / (3 * 16 + 7), 0.015);
}

TEST(TrainingEstimate, WhatCannotBeIsRefused) {
  const topology::Cluster c = cluster_of("dgx-h100", 1);
  EXPECT_THAT(error_of([&] { GroupPrices(c, 16, Constants::built_in()); }),
              HasSubstr("16 GPUs are wanted, and the cluster has 8"));
  GroupPrices prices(c, 8, Constants::built_in());
  EXPECT_THAT(error_of([&] {
                estimate_training(transformer_preset("llama3-8b"), training_of("dp=4", 4), gpu_spec("H100"),
                                  prices);
              }),
              HasSubstr("is of 4 GPUs, and 8 are there"));
  GpuSpec none = gpu_spec("H100");
  none.peak_tflops = -1;
  EXPECT_THAT(error_of([&] {
                estimate_training(transformer_preset("llama3-8b"), training_of("dp=8", 8), none, prices);
              }),
              HasSubstr("positive numbers are wanted"));
  EXPECT_THAT(error_of([] { gpu_spec("Voodoo 2"); }), HasSubstr("'Voodoo 2'"));
  EXPECT_EQ(gpu_spec("NVIDIA GB200").name, "GB200");
  EXPECT_EQ(gpu_spec("NVIDIA H100 80GB HBM3").name, "H100");
}

TEST(LayoutSearch, RanksWhatFits) {
  const topology::Cluster c = cluster_of("dgx-h100", 4);
  GroupPrices prices(c, 32, Constants::built_in());
  const Transformer& m = transformer_preset("llama3-70b");
  Training wanted;
  wanted.global_batch = 64;
  const GpuSpec gpu = gpu_spec("H100");
  const LayoutSearch found = search_layouts(m, wanted, gpu, prices, 5);
  ASSERT_EQ(found.ranked.size(), 5u);
  EXPECT_GT(found.possible, found.fit);
  double before = 0;
  for (const TrainingEstimate& e : found.ranked) {
    EXPECT_TRUE(e.fits);
    EXPECT_EQ(e.training.sizes.ranks(), 32);
    EXPECT_GE(e.time.total(), before);
    before = e.time.total();
  }
  // No layout of these beats the first.
  Training t = found.ranked[0].training;
  for (const char* layout : {"tp=8,pp=4", "tp=8,dp=4", "tp=4,pp=2,dp=4", "dp=32"}) {
    t.sizes = parse_layout(layout);
    t.micro_batch = t.interleave = 1;
    for (t.zero = 0; t.zero <= 3; ++t.zero)
      for (const Recompute r : {Recompute::none, Recompute::selective, Recompute::full}) {
        t.recompute = r;
        const TrainingEstimate e = estimate_training(m, t, gpu, prices);
        EXPECT_TRUE(!e.fits || e.time.total() >= found.ranked[0].time.total()) << layout;
      }
  }
  GpuSpec small = gpu;
  small.memory_gib = 20;
  EXPECT_TRUE(search_layouts(m, wanted, small, prices, 5).ranked.empty());
}

}  // namespace
}  // namespace muster
