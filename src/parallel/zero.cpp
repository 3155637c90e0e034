#include "muster/zero.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/math.h"
#include "parallel/bucket_reducer.h"
#include "parallel/shard_math.h"
#include "parallel/sharded_parameters.h"
#include "parallel/training_device.h"
#include "parallel/zero_arguments.h"

namespace muster::zero {
namespace {

constexpr float kFirstScale = 65536, kScaleFactor = 2;

}  // namespace

struct Optimizer::Impl {
  const std::unique_ptr<TrainingDevice> device;
  const Options options;
  const Layout layout;
  // Its own, so that the caller's calls and these don't depend on each other's order: of gradients and new
  // parameters; of parameters that are gathered while gradients are reduced; of replicas. Empty where there
  // is nothing to do.
  Communicator shards, gathers, replicas;
  BucketReducer reducer;
  ShardedParameters parameters;
  StateMemory master, first, second;  // float32, bucket by bucket, all elements in stage 0, else this rank's
  AdamW adam;
  float scale;
  int steps_since_overflow = 0;
  int64_t steps = 0;

  Impl(std::unique_ptr<TrainingDevice> where, Communicator& communicator, std::span<const Tensor> tensors,
       const Options& o, Communicator* copies)
      : device(std::move(where)),
        options((require_options(o, communicator, copies), o)),
        layout(sizes_of(tensors), communicator.size(), o.alignment, o.bucket),
        shards(communicator.split(0, communicator.rank())),
        gathers(o.stage == 3 ? communicator.split(0, communicator.rank()) : Communicator()),
        replicas(copies ? copies->split(0, copies->rank()) : Communicator()),
        reducer(*device, layout, options, shards, replicas),
        parameters(*device, layout, options, tensors, o.stage == 3 ? gathers : shards),
        adam(o.adam),
        scale(o.loss_scale > 0              ? o.loss_scale
              : o.type == DataType::float16 ? kFirstScale
                                            : 1) {
    const Digest digest = digest_of(options, tensors);
    require_equal(shards, digest);
    if (replicas) require_equal(replicas, digest);
    require_a_gpu_each(shards, replicas, *device);
    for (Communicator* c : {&shards, &gathers, &replicas})
      if (*c) device->connect(*c);
    const size_t held = options.stage == 0 ? layout.padded() : layout.shard();
    first = device->allocate(held * sizeof(float));
    second = device->allocate(held * sizeof(float));
    if (options.type != DataType::float32) fill_master(tensors, held);
  }
  ~Impl() { device->settle(); }  // nothing uses the state's memory any more
  static std::unique_ptr<Impl> make(std::unique_ptr<TrainingDevice> device, Communicator& communicator,
                                    std::span<const Tensor> tensors, const Options& options,
                                    Communicator* copies) {
    const HostValues values(*device, tensors);
    return std::make_unique<Impl>(std::move(device), communicator, values.tensors(), options, copies);
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
    master = device->allocate(held * sizeof(float));
    for_each_piece([&](size_t bucket, const Partition::Piece& piece, size_t at) {
      device->write(master.floats() + at,
                    tensors[layout.buckets()[bucket].first + piece.tensor].values + piece.in_tensor,
                    piece.elements, DataType::float32);
    });
  }

  std::vector<StatePiece> state() {
    parameters.await_published();
    std::vector<StatePiece> pieces;
    for_each_piece([&](size_t bucket, const Partition::Piece& piece, size_t at) {
      const Layout::Bucket& b = layout.buckets()[bucket];
      float* const exact = master.size == 0
                               ? reinterpret_cast<float*>(parameters.own(bucket)) + (at - held_begin(b))
                               : master.floats() + at;
      pieces.push_back({b.first + piece.tensor, piece.in_tensor, piece.elements, exact, first.floats() + at,
                        second.floats() + at});
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
      if (master.size)
        device->round_elements(master.floats() + held_begin(b), parameters.own(i), held_elements(b),
                               options.type);
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
    std::vector<TrainingDevice::Elements> shares;  // of shards that this rank adds up, one behind the other
    for (int r = 0; r < layout.world(); ++r) {
      if (options.stage > 0 && r != shards.rank()) continue;
      for (const Layout::Bucket& b : layout.buckets())
        shares.push_back({gradients(b, r), b.partition.shard()});
    }
    const std::vector<double> sums = device->sums_of_squares(shares, options.type);
    std::vector<double> parts(static_cast<size_t>(layout.world()));
    const auto of_shard = [&](size_t k) {
      double sum = 0;
      for (size_t b = 0; b < layout.buckets().size(); ++b) sum += sums[k * layout.buckets().size() + b];
      return sum;
    };
    if (options.stage == 0) {
      for (size_t r = 0; r < parts.size(); ++r) parts[r] = of_shard(r);
    } else {
      const double mine = of_shard(0);
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
      device->adam_step(now, parameters.own(i), gradients(b, options.stage == 0 ? 0 : shards.rank()),
                        master.size ? master.floats() + at : nullptr, first.floats() + at,
                        second.floats() + at, held_elements(b), options.type);
      parameters.publish(i);
    }
  }
};

Optimizer::Optimizer(Communicator& communicator, std::span<const Tensor> tensors, const Options& options,
                     Communicator* replicas)
    : impl_(Impl::make(host_training_device(), communicator, tensors, options, replicas)) {}
Optimizer::Optimizer(Communicator& communicator, std::span<const Tensor> tensors, const Options& options,
                     GpuStream stream, Communicator* replicas)
    : impl_(Impl::make(gpu_training_device(stream), communicator, tensors, options, replicas)) {}
Optimizer::~Optimizer() = default;

const Layout& Optimizer::layout() const { return impl_->layout; }
const void* Optimizer::use(size_t tensor, Pass pass) { return impl_->parameters.use(tensor, pass); }
void Optimizer::done(size_t tensor) { impl_->parameters.done(tensor); }
void Optimizer::gradient(size_t tensor, const void* values) {
  impl_->device->require_own_memory(values, "gradients", tensor);
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
  return {i.parameters.bytes(), i.reducer.gradients().size, i.master.size, i.first.size + i.second.size};
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
