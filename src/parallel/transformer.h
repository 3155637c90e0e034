// A transformer language model in the numbers that memory and time are made of.
//
// Parameters are counted tensor by tensor. Floating-point operations: 2 per multiply-add, of matrix products
// only, as Narayanan et al. count them (Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM, SC 2021, section 5.1): per layer and sequence forward 24 s h^2 + 4 s^2 h, backward twice that,
// head 6 s h V in all. For other shapes of layers the same products are counted; attention is counted in
// full, not only its causal half.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace muster {

// What a layer is made of besides its sizes.
enum class TransformerFamily : uint8_t {
  gpt,    // biases, LayerNorm, GELU, dropout, learned positions, head tied to the embedding
  llama,  // no biases, RMSNorm, SwiGLU, no dropout, rotary positions, a head of its own
};

struct Transformer {
  std::string name;  // of the preset; empty: described by the caller
  TransformerFamily family = TransformerFamily::llama;
  int64_t layers = 0, hidden = 0, heads = 0;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t ffn = 0;       // inner size of the feed-forward part; 0: 4 * hidden
  int64_t vocabulary = 0, sequence = 0;
  int64_t experts = 0;  // of each layer; 0: dense
  int64_t experts_per_token = 2;
  std::string source;  // where a preset's numbers are from

  int64_t kv() const { return kv_heads ? kv_heads : heads; }
  int64_t inner() const { return ffn ? ffn : 4 * hidden; }
  int64_t head_size() const { return hidden / heads; }
  int64_t kv_hidden() const { return kv() * head_size(); }
};

// Throws invalid_argument where a size is missing, negative, too large or doesn't divide.
void check(const Transformer& model);

// Elements; of one rank where tensors are split `tp` ways (1: of all). Column-split matrices and their biases
// are split, row-split matrices too, but not their biases; norms and router are on each rank. Key/value heads
// fewer than ranks are on several of them. The vocabulary is split in parts of equal size, the last one
// padded.
struct ParameterCount {
  int64_t attention = 0, norms = 0;  // of one layer
  int64_t mlp = 0;                   // of one layer; of one expert where there are some
  int64_t router = 0;                // of one layer
  int64_t embedding = 0;             // with learned positions
  int64_t head = 0;                  // 0 where it is the embedding
  int64_t final_norm = 0;
};
ParameterCount count_parameters(const Transformer& model, int64_t tp = 1);

int64_t total_parameters(const Transformer& model);
int64_t active_parameters(const Transformer& model);  // those that one token uses

// Forward, of one sequence.
double layer_matrix_flops(const Transformer& model);     // products with weights of one layer
double layer_attention_flops(const Transformer& model);  // scores, and scores times values, of one layer
double head_flops(const Transformer& model);

// Forward and backward of one sequence, nothing recomputed.
double model_flops(const Transformer& model);

std::span<const Transformer> transformer_presets();
// Throws invalid_argument with the names that there are.
const Transformer& transformer_preset(std::string_view name);

}  // namespace muster
