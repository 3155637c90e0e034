#include "parallel/transformer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace muster {
namespace {

using Family = TransformerFamily;

constexpr int64_t kMostSize = int64_t{1} << 31;

constexpr const char* kLlama3 = "Llama 3 report, arXiv 2407.21783, table 3";
constexpr const char* kPtdp = "Narayanan et al. 2021, arXiv 2104.04473, table 1";
constexpr const char* kKorthikanti = "Korthikanti et al. 2022, arXiv 2205.05198, table 3";

Transformer gpt(const char* name, int64_t layers, int64_t hidden, int64_t heads, const char* source) {
  return {name, Family::gpt, layers, hidden, heads, 0, 0, 51200, 2048, 0, 2, source};
}

Transformer llama3(const char* name, int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) {
  return {name, Family::llama, layers, hidden, heads, 8, ffn, 128256, 8192, 0, 2, kLlama3};
}

const std::vector<Transformer>& presets() {
  static const std::vector<Transformer> all = {
      llama3("llama3-8b", 32, 4096, 32, 14336),
      llama3("llama3-70b", 80, 8192, 64, 28672),
      llama3("llama3-405b", 126, 16384, 128, 53248),
      {"mixtral-8x7b", Family::llama, 32, 4096, 32, 8, 14336, 32000, 4096, 8, 2,
       "Jiang et al. 2024, arXiv 2401.04088, table 1"},
      gpt("gpt3-175b", 96, 12288, 96, kKorthikanti),
      gpt("gpt-22b", 48, 6144, 64, kKorthikanti),
      gpt("gpt-530b", 105, 20480, 128, kKorthikanti),
      gpt("gpt-1t", 128, 25600, 160, kKorthikanti),
      gpt("gpt-1.7b", 24, 2304, 24, kPtdp),
      gpt("gpt-3.6b", 30, 3072, 32, kPtdp),
      gpt("gpt-7.5b", 36, 4096, 32, kPtdp),
      gpt("gpt-18.4b", 40, 6144, 48, kPtdp),
      gpt("gpt-39.1b", 48, 8192, 64, kPtdp),
      gpt("gpt-76.1b", 60, 10240, 80, kPtdp),
      gpt("gpt-145.6b", 80, 12288, 96, kPtdp),
      gpt("gpt-310.1b", 96, 16384, 128, kPtdp),
  };
  return all;
}

void check_size(const char* what, int64_t value, int64_t least) {
  if (value < least || value > kMostSize)
    fail(Result::invalid_argument, "a model with {} = {}: {} to 2^31 are possible", what, value, least);
}

int64_t parts(int64_t whole, int64_t n) { return (whole + n - 1) / n; }

}  // namespace

void check(const Transformer& m) {
  check_size("layers", m.layers, 1);
  check_size("hidden", m.hidden, 1);
  check_size("heads", m.heads, 1);
  check_size("kv-heads", m.kv_heads, 0);
  check_size("ffn", m.ffn, 0);
  check_size("vocab", m.vocabulary, 1);
  check_size("sequence", m.sequence, 1);
  check_size("experts", m.experts, 0);
  if (m.hidden % m.heads != 0)
    fail(Result::invalid_argument, "{} heads don't divide a hidden size of {}", m.heads, m.hidden);
  if (m.heads % m.kv() != 0)
    fail(Result::invalid_argument, "{} key/value heads don't divide {} heads", m.kv(), m.heads);
  if (m.experts > 0 && (m.experts_per_token < 1 || m.experts_per_token > m.experts))
    fail(Result::invalid_argument, "{} experts per token, and there are {}", m.experts_per_token, m.experts);
}

ParameterCount count_parameters(const Transformer& m, int64_t tp) {
  const bool gpt_like = m.family == Family::gpt;
  const int64_t h = m.hidden, f = parts(m.inner(), tp), q = parts(m.heads, tp) * m.head_size();
  const int64_t kv = parts(m.kv(), tp) * m.head_size();
  ParameterCount c;
  c.attention = h * (q + 2 * kv) + q * h;
  c.mlp = gpt_like ? 2 * h * f : 3 * h * f;
  if (gpt_like) {
    c.attention += q + 2 * kv + h;
    c.mlp += f + h;
  }
  const int64_t norm = gpt_like ? 2 * h : h;
  c.norms = 2 * norm;
  c.final_norm = norm;
  c.router = m.experts * h;
  c.embedding = parts(m.vocabulary, tp) * h + (gpt_like ? m.sequence * h : 0);
  c.head = gpt_like ? 0 : parts(m.vocabulary, tp) * h;
  return c;
}

int64_t total_parameters(const Transformer& m) {
  const ParameterCount c = count_parameters(m);
  return m.layers * (c.attention + c.norms + c.router + std::max<int64_t>(1, m.experts) * c.mlp) +
         c.embedding + c.head + c.final_norm;
}

int64_t active_parameters(const Transformer& m) {
  if (m.experts == 0) return total_parameters(m);
  return total_parameters(m) - m.layers * (m.experts - m.experts_per_token) * count_parameters(m).mlp;
}

double layer_matrix_flops(const Transformer& m) {
  const double h = static_cast<double>(m.hidden), f = static_cast<double>(m.inner());
  const double attention = 2 * h * h + 2 * h * static_cast<double>(m.kv_hidden());
  const double mlp = (m.family == Family::gpt ? 2 : 3) * h * f *
                     static_cast<double>(m.experts > 0 ? m.experts_per_token : 1);
  const double router = h * static_cast<double>(m.experts);
  return 2 * static_cast<double>(m.sequence) * (attention + mlp + router);
}

double layer_attention_flops(const Transformer& m) {
  const double s = static_cast<double>(m.sequence);
  return 4 * s * s * static_cast<double>(m.hidden);
}

double head_flops(const Transformer& m) {
  return 2 * static_cast<double>(m.sequence) * static_cast<double>(m.hidden) *
         static_cast<double>(m.vocabulary);
}

double model_flops(const Transformer& m) {
  return 3 *
         (static_cast<double>(m.layers) * (layer_matrix_flops(m) + layer_attention_flops(m)) + head_flops(m));
}

std::span<const Transformer> transformer_presets() { return presets(); }

const Transformer& transformer_preset(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Transformer& m : presets()) {
    if (m.name == name) return m;
    names.push_back(m.name);
  }
  const std::string_view near = nearest_name(name, names);
  fail(Result::invalid_argument,
       "'{}' is no model that is known{}. There are: {}; or describe it by its sizes", printable(name, 60),
       near.empty() ? "" : fmt::format(" (did you mean {}?)", near), fmt::join(names, ", "));
}

}  // namespace muster
