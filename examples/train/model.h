// A small transformer language model over bytes, in fp32 on host memory: learned positions, pre-norm blocks
// of causal attention and a GELU feed-forward, as GPT-2's (Radford et al., 2019), without dropout and with an
// output layer of its own.
//
// A rank holds a Part of it: some consecutive blocks (pipeline parallelism) and of each block some heads and
// as many columns of the feed-forward, of embedding and output some of the vocabulary (tensor parallelism, as
// Shoeybi et al., 2019, split them). Between the split layers ranks have all rows, or some each (sequence
// parallelism, Korthikanti et al., 2022). Parts of the same seed hold the same numbers, whatever the split.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace train {

struct Shape {
  size_t vocabulary = 128, context = 64, width = 64, heads = 4, blocks = 4;
  size_t head() const { return width / heads; }
  size_t parameters() const;  // of the whole model
};

// What tensor-parallel ranks do together; here a rank that is alone. A row is a token's.
struct Columns {
  struct Range {
    size_t begin, count;
  };
  virtual ~Columns() = default;
  virtual Range rows(size_t all) const { return {0, all}; }  // that this rank has between split layers
  virtual Range vocabulary(size_t all) const { return {0, all}; }
  // Own rows of `width` elements to all of them, and ranks' parts of all rows to their sum of own ones.
  virtual void gather(const float* own, float* all, size_t rows, size_t width);
  virtual void sum(const float* parts, float* own, size_t rows, size_t width);
  // A gradient to which each rank's own rows contributed.
  virtual void sum_of_own_rows(float*, size_t) {}
  // Of all rows: logits of this rank's vocabulary become probabilities. The sum of losses, on all ranks.
  virtual double cross_entropy(float* logits, const uint8_t* targets, size_t rows, size_t vocabulary);
};

// Which part of the model.
struct Slice {
  size_t stage = 0, stages = 1;    // of the pipeline
  size_t column = 0, columns = 1;  // of the tensor-parallel ranks
  Columns* with = nullptr;         // null: alone
};

struct Tensor {
  std::string name;
  size_t offset = 0, size = 0;  // elements; where initialize() puts it
  bool replicated = true;       // every tensor-parallel rank has all of it
};

// What a forward pass keeps for its backward pass.
struct Saved {
  size_t sequences = 0;
  std::vector<uint8_t> tokens, targets;  // sequences * context
  struct Block {
    std::vector<float> x, norm1, stats1, qkv, weights, mixed, y, norm2, stats2, inner, active;
  };
  std::vector<Block> blocks;
  std::vector<float> x, norm, stats, probabilities;  // of the last stage
};

class Part {
 public:
  // Throws std::invalid_argument where heads or blocks can't be split so.
  Part(const Shape& shape, Slice slice);

  const Shape& shape() const { return shape_; }
  bool is_first() const { return slice_.stage == 0; }
  bool is_last() const { return slice_.stage + 1 == slice_.stages; }
  size_t size() const { return size_; }  // elements
  // In the order in which a forward pass needs them; `units` are what it needs at once: the embedding, each
  // block, the output.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  struct Unit {
    size_t first, last;  // tensors, last one beyond
  };
  const std::vector<Unit>& units() const { return units_; }

  void initialize(float* parameters, uint64_t seed) const;
  size_t own_rows(size_t sequences) const { return columns_.rows(sequences * shape_.context).count; }

  // Told what a pass is about to need, and what it is done with. Backward passes go from the last unit to the
  // first; when one is done, its gradients are complete for this micro-batch.
  struct Watch {
    virtual ~Watch() = default;
    virtual void begins(size_t unit) = 0;
    virtual void ended(size_t unit) = 0;
  };

  // Parameters and gradients: by tensor, where it lies. A watch may put that there when a unit begins, and
  // take it away when it has ended.
  //
  // `tokens`: first stage only, `targets`: last stage only, `sequences` * context bytes. `input`: other
  // stages', [own_rows(sequences), width]. Returns the sum of the losses of all targets (last stage), else 0,
  // and puts what the next stage needs into `output`.
  double forward(const float* const* parameters, const uint8_t* tokens, const uint8_t* targets,
                 const float* input, size_t sequences, Saved& saved, std::vector<float>* output,
                 Watch* watch = nullptr) const;
  // Fills in `gradients`, which are zeros: of the sum of losses times `scale`. `output_gradient`: all but the
  // last stage.
  void backward(const float* const* parameters, const Saved& saved, const float* output_gradient, float scale,
                float* const* gradients, std::vector<float>* input_gradient, Watch* watch = nullptr) const;

 private:
  enum BlockTensor : size_t {
    kGain1,
    kBias1,
    kQkv,
    kQkvBias,
    kOut,
    kOutBias,
    kGain2,
    kBias2,
    kUp,
    kUpBias,
    kDown,
    kDownBias,
    kBlockTensors
  };
  void add(std::string name, size_t size, bool replicated);
  void forward_block(const float* const* p, size_t first_tensor, Saved::Block& s, std::vector<float>& x,
                     size_t sequences) const;
  void backward_block(const float* const* p, size_t first_tensor, const Saved::Block& s,
                      std::vector<float>& dx, float* const* g, size_t sequences) const;
  std::vector<float> gathered(const std::vector<float>& own, size_t rows) const;
  std::vector<float> summed(const std::vector<float>& parts, size_t rows) const;
  void complete(size_t unit, float* const* gradients) const;

  const Shape shape_;
  const Slice slice_;
  Columns& columns_;
  const Columns::Range words_;
  size_t heads_, inner_;  // this rank's
  size_t first_block_, last_block_;
  std::vector<Tensor> tensors_;
  std::vector<Unit> units_;
  size_t size_ = 0;
};

}  // namespace train
