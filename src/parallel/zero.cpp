#include "muster/zero.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/math.h"
#include "comm/gpu_rank.h"
#include "parallel/bucket_reducer.h"
#include "parallel/shard_math.h"
#include "parallel/sharded_parameters.h"

namespace muster::zero {
namespace {

constexpr float kFirstScale = 65536, kScaleFactor = 2;

void require_options(const Options& o, const Communicator& communicator, const Communicator* replicas) {
  state_bytes(0, 1, o.stage, o.type);  // refuses other stages and types
  const auto require = [](bool right, const char* name, double value, const char* wanted) {
    if (!right) fail(Result::invalid_argument, "zero::Options::{} is {}; {} wanted", name, value, wanted);
  };
  require(o.micro_batches >= 1, "micro_batches", o.micro_batches, "1 or more");
  require(o.prefetch >= 0, "prefetch", o.prefetch, "0 or more");
  require(o.clip_norm >= 0 && std::isfinite(o.clip_norm), "clip_norm", o.clip_norm,
          "0 (no clipping) or a norm");
  require(o.loss_scale >= 0 && std::isfinite(o.loss_scale), "loss_scale", o.loss_scale,
          "0 (the type's) or a factor");
  require(o.scale_growth >= 1, "scale_growth", o.scale_growth, "1 or more");
  const bool gathers = o.stage == 3 || (o.stage > 0 && o.type != DataType::float32);
  if (o.quantised_gather && !gathers)
    fail(Result::invalid_argument, "zero::Options::quantised_gather at stage {} with {}: {}", o.stage,
         name_of(o.type),
         o.stage == 0 ? "nothing is gathered; stage 1 to 3 wanted"
                      : "the gathered parameters are the master copy; a 16-bit type or stage 3 wanted");
  for (const Communicator* c : {&communicator, replicas})
    if (c && !c->blocking())
      fail(Result::invalid_argument,
           "zero::Optimizer on communicator {}, which doesn't block; one that does wanted", c->name());
  if (replicas && o.stage == 0)
    fail(Result::invalid_argument,
         "zero::Optimizer at stage 0 with replicas: nothing is sharded, so one communicator of all ranks is "
         "wanted");
}

// The state lives in host memory, and so must what comes and goes.
void require_host_memory(const void* p, const char* what, size_t tensor) {
  if (const GpuLibrary* gpus = gpu_library(); gpus && p && gpus->holds(p))
    fail(Result::invalid_argument,
         "the {} of tensor {} are GPU memory; zero::Optimizer works on host memory. Copy them to the host",
         what, tensor);
}

std::vector<size_t> sizes_of(std::span<const Tensor> tensors) {
  std::vector<size_t> sizes;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (tensors[t].elements && !tensors[t].values)
      fail(Result::invalid_argument, "the values of tensor {} ({} elements) are null", t,
           tensors[t].elements);
    require_host_memory(tensors[t].values, "initial values", t);
    sizes.push_back(tensors[t].elements);
  }
  return sizes;
}

// Of all that must be equal on all ranks.
struct Digest {
  uint64_t options = 0, sizes = 0, values = 0, progress = 0;
};
Digest digest_of(const Options& o, std::span<const Tensor> tensors) {
  Digest d;
  for (const uint64_t v :
       {static_cast<uint64_t>(o.stage), static_cast<uint64_t>(o.type), static_cast<uint64_t>(o.alignment),
        static_cast<uint64_t>(o.bucket), static_cast<uint64_t>(o.micro_batches),
        static_cast<uint64_t>(o.prefetch), std::bit_cast<uint64_t>(o.clip_norm),
        static_cast<uint64_t>(o.scale_growth), static_cast<uint64_t>(o.quantised_gather),
        static_cast<uint64_t>(BucketReducer::one_order_of_sums())})
    d.options = hash_combine(d.options, v);
  for (const float v :
       {o.loss_scale, o.adam.learning_rate, o.adam.beta1, o.adam.beta2, o.adam.epsilon, o.adam.weight_decay})
    d.options = hash_combine(d.options, std::bit_cast<uint32_t>(v));
  for (const Tensor& t : tensors) {
    d.sizes = hash_combine(d.sizes, t.elements);
    for (size_t i = 0; i < t.elements; ++i)
      d.values = hash_combine(d.values, std::bit_cast<uint32_t>(t.values[i]));
  }
  return d;
}

void require_equal(Communicator& c, const Digest& mine) {
  std::vector<Digest> all(static_cast<size_t>(c.size()));
  constexpr size_t kWords = sizeof(Digest) / sizeof(uint64_t);
  c.all_gather(&mine, all.data(), kWords, DataType::uint64);
  for (int r = 1; r < c.size(); ++r) {
    const Digest &a = all[0], &b = all[static_cast<size_t>(r)];
    const char* const what = a.options != b.options     ? "options"
                             : a.sizes != b.sizes       ? "sizes of tensors"
                             : a.values != b.values     ? "initial values"
                             : a.progress != b.progress ? "progress to restore"
                                                        : nullptr;
    if (what)
      fail(Result::invalid_usage,
           "zero::Optimizer on communicator {}: rank {} has other {} than rank 0. All ranks must pass the "
           "same",
           c.name(), r, what);
  }
}

}  // namespace

struct Optimizer::Impl {
  const Options options;
  const Layout layout;
  // Its own, so that the caller's calls and these don't depend on each other's order: of gradients and new
  // parameters; of parameters that are gathered while gradients are reduced; of replicas. Empty where there
  // is nothing to do.
  Communicator shards, gathers, replicas;
  BucketReducer reducer;
  ShardedParameters parameters;
  std::vector<float> master, first, second;  // bucket by bucket, all elements in stage 0, else this rank's
  AdamW adam;
  float scale;
  int steps_since_overflow = 0;
  int64_t steps = 0;

  Impl(Communicator& communicator, std::span<const Tensor> tensors, const Options& o, Communicator* copies)
      : options((require_options(o, communicator, copies), o)),
        layout(sizes_of(tensors), communicator.size(), o.alignment, o.bucket),
        shards(communicator.split(0, communicator.rank())),
        gathers(o.stage == 3 ? communicator.split(0, communicator.rank()) : Communicator()),
        replicas(copies ? copies->split(0, copies->rank()) : Communicator()),
        reducer(layout, options, shards, replicas),
        parameters(layout, options, tensors, o.stage == 3 ? gathers : shards),
        adam(o.adam),
        scale(o.loss_scale > 0              ? o.loss_scale
              : o.type == DataType::float16 ? kFirstScale
                                            : 1) {
    const Digest digest = digest_of(options, tensors);
    require_equal(shards, digest);
    if (replicas) require_equal(replicas, digest);
    const size_t held = options.stage == 0 ? layout.padded() : layout.shard();
    first.resize(held);
    second.resize(held);
    if (options.type != DataType::float32) fill_master(tensors, held);
  }

  size_t held_begin(const Layout::Bucket& b) const {
    return options.stage == 0 ? b.flat_begin : b.shard_begin;
  }
  size_t held_elements(const Layout::Bucket& b) const {
    return options.stage == 0 ? b.partition.padded() : b.partition.shard();
  }

  // The parts of tensors whose state is held: put(bucket, piece, where it begins in master and moments).
  template <class Put>
  void for_each_piece(Put&& put) const {
    for (size_t i = 0; i < layout.buckets().size(); ++i) {
      const Layout::Bucket& b = layout.buckets()[i];
      for (int r = 0; r < layout.world(); ++r) {
        if (options.stage > 0 && r != shards.rank()) continue;
        const size_t begin =
            held_begin(b) + (options.stage == 0 ? static_cast<size_t>(r) * b.partition.shard() : 0);
        for (const Partition::Piece& piece : b.partition.pieces(r)) put(i, piece, begin + piece.in_shard);
      }
    }
  }

  void fill_master(std::span<const Tensor> tensors, size_t held) {
    master.resize(held);
    for_each_piece([&](size_t bucket, const Partition::Piece& piece, size_t at) {
      std::copy_n(tensors[layout.buckets()[bucket].first + piece.tensor].values + piece.in_tensor,
                  piece.elements, master.data() + at);
    });
  }

  std::vector<StatePiece> state() {
    parameters.await_published();
    std::vector<StatePiece> pieces;
    for_each_piece([&](size_t bucket, const Partition::Piece& piece, size_t at) {
      const Layout::Bucket& b = layout.buckets()[bucket];
      float* const exact = master.empty()
                               ? reinterpret_cast<float*>(parameters.own(bucket)) + (at - held_begin(b))
                               : master.data() + at;
      pieces.push_back({b.first + piece.tensor, piece.in_tensor, piece.elements, exact, first.data() + at,
                        second.data() + at});
    });
    return pieces;
  }

  void restore(const Progress& p) {
    if (p.steps < 0 || !(p.loss_scale > 0) || !std::isfinite(p.loss_scale) || p.steps_since_overflow < 0 ||
        p.steps_since_overflow >= options.scale_growth)
      fail(Result::invalid_argument,
           "zero::Progress of {} steps, loss scale {} and {} steps since an overflow; 0 or more, above 0, "
           "and 0 "
           "to {} wanted",
           p.steps, p.loss_scale, p.steps_since_overflow, options.scale_growth - 1);
    if (reducer.has_gradients())
      fail(Result::invalid_usage,
           "restore() after gradients of a step. Call it before the first or behind step()");
    parameters.close();
    require_equal(shards,
                  {.progress = hash_combine(hash_combine(hash_combine(1, static_cast<uint64_t>(p.steps)),
                                                         std::bit_cast<uint32_t>(p.loss_scale)),
                                            static_cast<uint64_t>(p.steps_since_overflow))});
    steps = p.steps;
    scale = p.loss_scale;
    steps_since_overflow = p.steps_since_overflow;
    for (size_t i = layout.buckets().size(); i-- > 0;) {
      const Layout::Bucket& b = layout.buckets()[i];
      if (!master.empty())
        round_elements(master.data() + held_begin(b), parameters.own(i), held_elements(b), options.type);
      parameters.publish(i);
    }
  }

  // Reduced gradients of rank's shard of a bucket. Of other ranks in stages 0 and 1 only.
  const std::byte* gradients(const Layout::Bucket& b, int rank) const {
    const size_t at =
        options.stage >= 2 ? b.shard_begin : b.flat_begin + static_cast<size_t>(rank) * b.partition.shard();
    return reducer.gradients().data() + at * size_of(options.type);
  }

  // Added up shard by shard and then rank by rank, at every stage: all ranks get the same bits.
  double squares() {
    const auto of_shard = [&](int rank) {
      double sum = 0;
      for (const Layout::Bucket& b : layout.buckets())
        sum += sum_of_squares(gradients(b, rank), b.partition.shard(), options.type);
      return sum;
    };
    std::vector<double> parts(static_cast<size_t>(layout.world()));
    if (options.stage == 0) {
      for (int r = 0; r < layout.world(); ++r) parts[static_cast<size_t>(r)] = of_shard(r);
    } else {
      const double mine = of_shard(shards.rank());
      shards.all_gather(&mine, parts.data(), 1, DataType::float64);
    }
    double sum = 0;
    for (const double part : parts) sum += part;
    return sum;
  }

  void overflowed() {
    if (options.type == DataType::float16) scale = std::max(1.0f, scale / kScaleFactor);
    steps_since_overflow = 0;
  }
  void fitted() {
    if (options.type != DataType::float16 || ++steps_since_overflow < options.scale_growth) return;
    steps_since_overflow = 0;
    if (scale <= std::numeric_limits<float>::max() / kScaleFactor) scale *= kScaleFactor;
  }

  StepResult step() {
    if (reducer.micro_batches() != options.micro_batches)
      fail(Result::invalid_usage,
           "step() after {} of {} micro-batches (Options::micro_batches). Call end_micro_batch() after each",
           reducer.micro_batches(), options.micro_batches);
    parameters.close();
    reducer.finish();
    StepResult result;
    double factor = 1.0 / (static_cast<double>(scale) * options.micro_batches);
    if (options.type == DataType::float16 || options.clip_norm > 0) {
      const double norm = std::sqrt(squares()) * factor;
      result.norm = norm;
      result.skipped = !std::isfinite(norm);
      // As PyTorch's clip_grad_norm_ does.
      if (options.clip_norm > 0) factor *= std::min(1.0, options.clip_norm / (norm + 1e-6));
    }
    if (result.skipped) {
      overflowed();
    } else {
      update(static_cast<float>(factor));
      fitted();
    }
    reducer.clear();
    return result;
  }

  // In the order in which a forward pass uses them, buckets are gathered while the next ones are updated, and
  // while the caller computes.
  void update(float factor) {
    const AdamStep now{adam, ++steps, factor};
    for (size_t i = layout.buckets().size(); i-- > 0;) {
      const Layout::Bucket& b = layout.buckets()[i];
      const size_t at = held_begin(b);
      adam_step(now, parameters.own(i), gradients(b, options.stage == 0 ? 0 : shards.rank()),
                master.empty() ? nullptr : master.data() + at, first.data() + at, second.data() + at,
                held_elements(b), options.type);
      parameters.publish(i);
    }
  }
};

Optimizer::Optimizer(Communicator& communicator, std::span<const Tensor> tensors, const Options& options,
                     Communicator* replicas)
    : impl_(std::make_unique<Impl>(communicator, tensors, options, replicas)) {}
Optimizer::~Optimizer() = default;

const Layout& Optimizer::layout() const { return impl_->layout; }
const void* Optimizer::use(size_t tensor, Pass pass) { return impl_->parameters.use(tensor, pass); }
void Optimizer::done(size_t tensor) { impl_->parameters.done(tensor); }
void Optimizer::gradient(size_t tensor, const void* values) {
  require_host_memory(values, "gradients", tensor);
  impl_->reducer.add(tensor, values);
}
void Optimizer::end_micro_batch() { impl_->reducer.end_micro_batch(); }
StepResult Optimizer::step() { return impl_->step(); }
void Optimizer::set_adam(const AdamW& adam) { impl_->adam = adam; }
float Optimizer::loss_scale() const { return impl_->scale; }
std::vector<StatePiece> Optimizer::state() { return impl_->state(); }
Progress Optimizer::progress() const { return {impl_->steps, impl_->scale, impl_->steps_since_overflow}; }
void Optimizer::restore(const Progress& progress) { impl_->restore(progress); }

StateBytes Optimizer::allocated() const {
  const Impl& i = *impl_;
  return {i.parameters.bytes(), i.reducer.gradients().size(), i.master.size() * sizeof(float),
          (i.first.size() + i.second.size()) * sizeof(float)};
}
size_t Optimizer::passing_bytes() const {
  return impl_->reducer.passing_bytes() + impl_->parameters.passing_bytes();
}

BytesSent Optimizer::bytes_sent() const {
  impl_->parameters.await_published();
  BytesSent sum;
  for (const Communicator* c : {&impl_->shards, &impl_->gathers, &impl_->replicas})
    if (*c) sum = sum + muster::bytes_sent(*c);
  return sum;
}

}  // namespace muster::zero
