// Trains the model in any layout: `muster run -n 8 example_train --layout tp=2,pp=2,dp=2 --zero 1`.
//
// Copies of the model (dp) learn different sequences of a step; a copy is cut into pipeline stages (pp), and
// each block into columns, embedding and output by the vocabulary (tp). The batch is the same in every
// layout, and so are the losses, up to the order of sums.
#include <CLI/CLI.hpp>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>

#include "columns.h"
#include "model.h"
#include "muster/mesh.h"
#include "muster/pipeline.h"
#include "muster/zero.h"
#include "text.h"

namespace {

using muster::DataType;
using muster::RedOp;
using namespace train;  // NOLINT

struct Settings {
  std::string layout = "dp=1", text = TRAIN_TEXT;
  muster::TensorForm form = muster::TensorForm::replicated;
  size_t steps = 20, sequences = 16, micro_batches = 2;
  uint64_t seed = 1;
  muster::zero::Options zero;
  Shape shape;
};

// Parameters come from the optimizer when a unit of the model begins, gradients go there when it has ended.
class Shared final : public Part::Watch {
 public:
  Shared(const Part& part, muster::zero::Optimizer& optimizer)
      : part_(part),
        optimizer_(optimizer),
        parameters_(part.tensors().size()),
        gradients_(part.tensors().size()) {}

  void enter(muster::zero::Pass pass) { pass_ = pass; }
  const float* const* parameters() const { return parameters_.data(); }
  float* const* gradients() const { return gradients_.data(); }

  void begins(size_t unit) override {
    const auto [first, last] = part_.units()[unit];
    size_t elements = 0;
    for (size_t t = first; t < last; ++t) {
      parameters_[t] = static_cast<const float*>(optimizer_.use(t, pass_));
      elements += part_.tensors()[t].size;
    }
    if (pass_ == muster::zero::Pass::forward) return;
    unit_gradients_.assign(elements, 0);
    for (size_t t = first, at = 0; t < last; at += part_.tensors()[t++].size)
      gradients_[t] = unit_gradients_.data() + at;
  }
  void ended(size_t unit) override {
    const auto [first, last] = part_.units()[unit];
    for (size_t t = first; t < last; ++t) {
      optimizer_.done(t);
      if (pass_ == muster::zero::Pass::backward) optimizer_.gradient(t, gradients_[t]);
    }
  }

 private:
  const Part& part_;
  muster::zero::Optimizer& optimizer_;
  muster::zero::Pass pass_ = muster::zero::Pass::forward;
  std::vector<const float*> parameters_;
  std::vector<float*> gradients_;
  std::vector<float> unit_gradients_;
};

class Trainer {
 public:
  Trainer(const Settings& settings, muster::Communicator& world)
      : s_(settings),
        world_(world),
        mesh_(world, muster::Mesh::parse(settings.layout), {"tp", "pp", "dp"}),
        text_(settings.text, settings.shape.context),
        columns_(mesh_["tp"], settings.form, settings.shape.vocabulary),
        part_(settings.shape, slice()),
        optimizer_(mesh_["dp"], initial(), settings.zero),
        shared_(part_, optimizer_),
        schedule_(
            muster::one_forward_one_backward_schedule(stages(), static_cast<int>(settings.micro_batches))) {
    const size_t copies = static_cast<size_t>(mesh_.mesh().size("dp"));
    if (s_.sequences % (copies * s_.micro_batches) != 0)
      throw std::invalid_argument(std::to_string(s_.sequences) + " sequences can't be shared by " +
                                  std::to_string(copies) + " copies with " +
                                  std::to_string(s_.micro_batches) + " micro-batches each");
    micro_ = s_.sequences / copies / s_.micro_batches;
    initial_ = {};
  }

  // One step; the mean loss of its targets before it, on every rank.
  double step(size_t number) {
    losses_ = 0;
    const size_t rows = micro_ * s_.shape.context;
    const auto batch = [&](int micro_batch) {
      const size_t mine =
          static_cast<size_t>(mesh_.coordinate("dp")) * s_.micro_batches + static_cast<size_t>(micro_batch);
      return text_.batch(s_.seed, number, mine * micro_, micro_);
    };
    muster::PipelineModel model;
    // Tokens go in, and losses come out, without a message.
    model.elements = [&](int, int boundary) {
      return boundary == 0 || boundary == stages() ? 0 : part_.own_rows(micro_) * s_.shape.width;
    };
    model.load = [](int, void*) {};
    model.loss = [](int, const void*, void*) {};
    model.forward = [&](int, int m, const void* input, void* output) {
      const Text::Batch b = batch(m);
      std::vector<float> out;
      shared_.enter(muster::zero::Pass::forward);
      losses_ += part_.forward(shared_.parameters(), b.tokens.data(), b.targets.data(),
                               static_cast<const float*>(input), micro_, saved_[m], &out, &shared_);
      if (!out.empty()) std::memcpy(output, out.data(), out.size() * sizeof(float));
    };
    model.backward = [&](int, int m, const void*, const void* output_gradient, void* input_gradient) {
      std::vector<float> in;
      shared_.enter(muster::zero::Pass::backward);
      part_.backward(shared_.parameters(), saved_[m], static_cast<const float*>(output_gradient),
                     1 / static_cast<float>(rows), shared_.gradients(), &in, &shared_);
      if (!in.empty()) std::memcpy(input_gradient, in.data(), in.size() * sizeof(float));
      saved_.erase(m);
      optimizer_.end_micro_batch();
    };
    muster::run_pipeline(mesh_["pp"], schedule_, model);
    optimizer_.step();
    double loss = mesh_.coordinate("tp") == 0 ? losses_ : 0;
    world_.all_reduce(&loss, &loss, 1, DataType::float64, RedOp::sum);
    return loss / static_cast<double>(s_.sequences * s_.shape.context);
  }

  // Of all parameters' bits, wherever they lie: equal for equal parameters in layouts that differ in dp or
  // --zero only.
  uint64_t fingerprint() {
    uint64_t sum = 0;
    for (size_t t = 0; t < part_.tensors().size(); ++t) {
      const auto* const values = static_cast<const float*>(optimizer_.use(t, muster::zero::Pass::forward));
      uint64_t h = 0xcbf29ce484222325;  // FNV-1a
      for (size_t i = 0; i < part_.tensors()[t].size; ++i)
        h = (h ^ std::bit_cast<uint32_t>(values[i])) * 0x100000001b3;
      optimizer_.done(t);
      sum += h;
    }
    if (mesh_.coordinate("dp") != 0) sum = 0;
    world_.all_reduce(&sum, &sum, 1, DataType::uint64, RedOp::sum);
    return sum;
  }

  // Of this rank: what is allocated, and what the formula says.
  size_t state_bytes() const { return optimizer_.allocated().total(); }
  size_t state_bytes_formula() const {
    return muster::zero::state_bytes(optimizer_.layout().padded(), mesh_.mesh().size("dp"), s_.zero.stage,
                                     DataType::float32)
        .total();
  }

 private:
  int stages() const { return mesh_.mesh().size("pp"); }
  Slice slice() {
    const auto at = [&](const char* axis) { return static_cast<size_t>(mesh_.coordinate(axis)); };
    const auto size = [&](const char* axis) { return static_cast<size_t>(mesh_.mesh().size(axis)); };
    return {at("pp"), size("pp"), at("tp"), size("tp"), size("tp") > 1 ? &columns_ : nullptr};
  }
  std::vector<muster::zero::Tensor> initial() {
    initial_.resize(part_.size());
    part_.initialize(initial_.data(), s_.seed);
    std::vector<muster::zero::Tensor> tensors;
    for (const Tensor& t : part_.tensors()) tensors.push_back({initial_.data() + t.offset, t.size});
    return tensors;
  }

  const Settings s_;
  muster::Communicator& world_;
  muster::MeshCommunicators mesh_;
  const Text text_;
  SplitColumns columns_;
  const Part part_;
  std::vector<float> initial_;
  muster::zero::Optimizer optimizer_;
  Shared shared_;
  const muster::PipelineSchedule schedule_;
  size_t micro_ = 0;  // sequences of a micro-batch
  std::map<int, Saved> saved_;
  double losses_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  Settings s;
  s.zero.stage = 0;
  s.zero.type = DataType::float32;
  s.zero.adam = {.learning_rate = 3e-3F, .beta2 = 0.95F, .weight_decay = 0.1F};
  s.zero.bucket = 1 << 16;
  CLI::App app("Trains a small language model; start it with `muster run -n N`, mpirun, srun or torchrun");
  app.add_option("--layout", s.layout,
                 "Ranks by axis, innermost first: tp (columns, vocabulary), pp (stages), dp (copies); their "
                 "product is "
                 "the number of ranks")
      ->capture_default_str();
  app.add_option(
         "--zero", s.zero.stage,
         "What the copies share out: 0 nothing, 1 the optimizer's state, 2 also gradients, 3 also parameters")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_flag_callback(
      "--tokens-split", [&] { s.form = muster::TensorForm::tokens_split; },
      "Between split layers tp ranks have some tokens each (sequence parallelism), not all of them");
  app.add_option("--steps", s.steps)->capture_default_str();
  app.add_option("--sequences", s.sequences, "Of a step, in all copies")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--micro-batches", s.micro_batches, "In which a copy takes its sequences")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--text", s.text, "What to learn")->capture_default_str();
  app.add_option("--seed", s.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  s.zero.micro_batches = static_cast<int>(s.micro_batches);

  muster::Communicator world = muster::Communicator::from_environment();
  {
    Trainer trainer(s, world);
    if (world.rank() == 0)
      printf("%zu parameters, %d ranks: %s, ZeRO stage %d\n", s.shape.parameters(), world.size(),
             s.layout.c_str(), s.zero.stage);
    for (size_t n = 0; n < s.steps; ++n) {
      const double loss = trainer.step(n);
      if (world.rank() == 0) printf("step %zu loss %.9f\n", n, loss);
    }
    const uint64_t print = trainer.fingerprint();
    if (world.rank() == 0)
      printf("parameters %016" PRIx64 "\nstate %zu bytes on rank 0, by the formula %zu\n", print,
             trainer.state_bytes(), trainer.state_bytes_formula());
    if (trainer.state_bytes() != trainer.state_bytes_formula()) {
      fprintf(stderr, "rank %d: state of %zu bytes in place of %zu\n", world.rank(), trainer.state_bytes(),
              trainer.state_bytes_formula());
      return 1;
    }
  }
  world.destroy();
  return 0;
} catch (const std::exception& e) {
  fprintf(stderr, "%s\n", e.what());
  return 1;
}
