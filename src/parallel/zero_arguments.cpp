#include "parallel/zero_arguments.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/math.h"
#include "parallel/bucket_reducer.h"

namespace muster::zero {

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

std::vector<size_t> sizes_of(std::span<const Tensor> tensors) {
  std::vector<size_t> sizes;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (tensors[t].elements && !tensors[t].values)
      fail(Result::invalid_argument, "the values of tensor {} ({} elements) are null", t,
           tensors[t].elements);
    sizes.push_back(tensors[t].elements);
  }
  return sizes;
}

HostValues::HostValues(TrainingDevice& device, std::span<const Tensor> tensors)
    : tensors_(tensors.begin(), tensors.end()), copies_(tensors.size()) {
  for (size_t t = 0; t < tensors.size(); ++t)
    if (tensors[t].values)
      tensors_[t].values = device.on_host(tensors[t].values, tensors[t].elements, t, copies_[t]);
}

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

// Memory of a GPU is freed behind all that the GPU is doing. Where that is the other rank's wait for a call
// that this one hasn't made, nothing would go on.
void require_a_gpu_each(Communicator& shards, Communicator& replicas, const TrainingDevice& device) {
  const std::optional<uint64_t> mine = device.identity();
  if (!mine) return;
  const auto n = static_cast<size_t>(shards.size());
  std::vector<uint64_t> all(n);
  shards.all_gather(&*mine, all.data(), 1, DataType::uint64);
  if (replicas) {
    const std::vector<uint64_t> column = all;
    all.resize(n * static_cast<size_t>(replicas.size()));
    replicas.all_gather(column.data(), all.data(), n, DataType::uint64);
  }
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return all[i]; });
  const auto same = std::ranges::adjacent_find(order, {}, [&](size_t i) { return all[i]; });
  if (same == order.end()) return;
  const auto text = [&](size_t i) {
    return replicas ? fmt::format("rank {} of replica {}", i % n, i / n) : fmt::format("rank {}", i);
  };
  fail(
      Result::invalid_usage,
      "zero::Optimizer on communicator {}: {} and {} are of one process and on one GPU, where one could wait "
      "for the other forever. Choose another GPU for each rank (cudaSetDevice) before it is made, or make "
      "each rank a process",
      shards.name(), text(same[0]), text(same[1]));
}

}  // namespace muster::zero
