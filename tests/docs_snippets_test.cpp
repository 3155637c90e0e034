// What docs/parallelism.md shows in C++, as it stands there, with the models that it leaves out.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "muster/bytes_sent.h"
#include "muster/coalesced.h"
#include "muster/expert_parallel.h"
#include "muster/mesh.h"
#include "muster/pipeline.h"
#include "muster/sequence_parallel.h"
#include "muster/tensor_parallel.h"
#include "muster/zero.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

TEST(DocsSnippets, Mesh) {
  test::run_threads(8, [](Communicator& world, int rank) {
    constexpr size_t n = 3;
    float gradients[n] = {1.0f * static_cast<float>(rank), 2, 4};
    double norm = 1;
#include "mesh.inc"
    EXPECT_EQ(gradients[0], static_cast<float>(mesh.group(rank, "dp")[0] + 2));  // r and r + 4
    EXPECT_EQ(gradients[2], 4);
    EXPECT_EQ(norm, 4);
  });
}

TEST(DocsSnippets, Identity) {
  for (const char* algorithm : {"ring", "direct"}) {
    const test::Variable forced("MUSTER_ALGO", algorithm), slots("MUSTER_WINDOWS", "0");
    test::run_threads(3, [](Communicator& world, int rank) {
      constexpr size_t ranks = 3, n = 3200 * ranks;
      std::vector<float> mine(n), sums(n), part(n / ranks), gathered(n);
      for (size_t i = 0; i < n; ++i)
        mine[i] = static_cast<float>(i * 7 % 1013) / static_cast<float>(rank + 3);
      const float* const data = mine.data();
      float *const whole = sums.data(), *const share = part.data(), *const again = gathered.data();
#include "identity.inc"
      EXPECT_EQ(by_all_reduce, 2 * (ranks - 1) * n / ranks * sizeof(float));
      EXPECT_EQ(by_both, by_all_reduce);
      EXPECT_EQ(sums, gathered);
    });
  }
}

TEST(DocsSnippets, Zero) {
  test::run_threads(2, [](Communicator& world, int) {
    MeshCommunicators comms(world, Mesh::parse("dp=2"));
    constexpr size_t layers = 4, width = 10;
    const std::vector<float> start(width, 0.5f);
    const std::vector<zero::Tensor> tensors(layers, {start.data(), width});
    std::vector<uint16_t> gradient_values(width, 0x3f80);  // 1
    void* const gradient = gradient_values.data();
    std::vector<size_t> passes;
    const auto forward = [&](size_t t, const void*) { passes.push_back(t); };
    const auto backward = [&](size_t t, const void* w, void*) {
      EXPECT_EQ(static_cast<const uint16_t*>(w)[width - 1], 0x3f00);  // 0.5
      passes.push_back(t);
    };
#include "Data.inc"
    EXPECT_EQ(passes, (std::vector<size_t>{0, 1, 2, 3, 3, 2, 1, 0}));
    EXPECT_EQ(zero.progress().steps, 1);
    // Adam's first step has the size of the learning rate, and 0.5 of its part is decay.
    for (const zero::StatePiece& p : zero.state()) EXPECT_NEAR(*p.parameters, 0.5f - 1e-3f - 0.5e-5f, 1e-6f);
  });
}

TEST(DocsSnippets, Lists) {
  test::run_threads(2, [](Communicator& world, int rank) {
    MeshCommunicators comms(world, Mesh::parse("dp=2"));
    const std::vector<size_t> sizes = {3, 1};
    std::vector<float> first(3, static_cast<float>(rank)), second(1, 4), new_first(3), new_second(1);
    const std::vector<const void*> gradients = {first.data(), second.data()};
    const std::vector<void*> parameters = {new_first.data(), new_second.data()};
    const auto update = [](size_t t, float* shard, size_t elements) {
      for (size_t i = 0; i < elements; ++i) shard[i] = static_cast<float>(t) - shard[i];
    };
#include "Lists.inc"
    EXPECT_EQ(new_first, std::vector<float>(3, -0.5f));
    EXPECT_EQ(new_second, std::vector<float>{-3});
  });
}

TEST(DocsSnippets, Pipeline) {
  test::run_threads(2, [](Communicator& stages, int rank) {
    constexpr int micro_batches = 3;
    constexpr size_t hidden = 2;
    const size_t length[micro_batches] = {1, 5, 2};
    const auto elements = [&](int m) { return length[m] * hidden; };
    const auto times = [&](int m, float factor, const void* from, void* to) {
      for (size_t i = 0; i < elements(m); ++i)
        static_cast<float*>(to)[i] = static_cast<const float*>(from)[i] * factor;
    };
    std::vector<float> seen;
    const auto load = [&](int m, void* input) {
      std::fill_n(static_cast<float*>(input), elements(m), static_cast<float>(m + 1));
    };
    const auto forward = [&](int, int m, const void* in, void* out) { times(m, 3, in, out); };
    const auto backward = [&](int, int m, const void*, const void* out_gradient, void* in_gradient) {
      seen.push_back(*static_cast<const float*>(out_gradient));
      if (in_gradient) times(m, 3, out_gradient, in_gradient);
    };
    const auto loss = [&](int m, const void* out, void* gradient) {
      EXPECT_EQ(*static_cast<const float*>(out), static_cast<float>(9 * (m + 1)));
      times(m, 1, out, gradient);
    };
#include "Pipeline.inc"
    const float gain = rank == 0 ? 27 : 9;
    EXPECT_EQ(seen, (std::vector<float>{gain, 2 * gain, 3 * gain}));
    EXPECT_EQ(run.messages_sent, 3u);
  });
}

TEST(DocsSnippets, Tensor) {
  test::run_threads(2, [](Communicator& world, int rank) {
    MeshCommunicators comms(world, Mesh::parse("tp=2"));
    constexpr size_t tokens = 3, width = 4;
    std::vector<float> values(tokens * width, 1), results(tokens * width);
    float *const x = values.data(), *const y = results.data();
    const auto mlp_part = [&](const float* in, float* out, size_t rows) {
      for (size_t i = 0; i < rows * width; ++i) out[i] = in[i] * static_cast<float>(rank + 1);
    };
#include "Tensor.inc"
    EXPECT_EQ(results, std::vector<float>(tokens * width, 3));
  });
}

TEST(DocsSnippets, Sequence) {
  test::run_threads(3, [](Communicator& world, int rank) {
    MeshCommunicators comms(world, Mesh::parse("cp=3"));
    const std::vector<size_t> counts = {4, 3, 3};
    std::vector<float> mine(counts[static_cast<size_t>(rank)], static_cast<float>(rank));
    const float* const my_keys_and_values = mine.data();
    struct {
      std::vector<float> got = std::vector<float>(3);
      void add(int source, const void* block) {
        got[static_cast<size_t>(source)] = *static_cast<const float*>(block);
      }
    } attention;
#include "Sequence.inc"
    EXPECT_EQ(attention.got, (std::vector<float>{0, 1, 2}));
  });
}

TEST(DocsSnippets, Experts) {
  test::run_threads(2, [](Communicator& world, int) {
    MeshCommunicators comms(world, Mesh::parse("ep=2"));
    constexpr size_t tokens = 4, experts = 4, width = 2;
    const std::vector<int> chosen = {0, 1, 1, 2, 2, 3, 3, 0};  // two of each expert
    std::vector<float> in(tokens * width, 5), out(tokens * width), each(chosen.size(), 0.5f);
    const float *const x = in.data(), *const weights = each.data();
    float* const y = out.data();
    const auto run_experts = [&](float* all, const std::vector<size_t>& counts) {
      const size_t n = std::accumulate(counts.begin(), counts.end(), size_t{0});
      for (size_t i = 0; i < n * width; ++i) all[i] *= 2;
    };
#include "Experts.inc"
    EXPECT_EQ(out, std::vector<float>(tokens * width, 10));
  });
}

}  // namespace
}  // namespace muster
