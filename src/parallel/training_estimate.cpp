#include "parallel/training_estimate.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace muster {
namespace {

constexpr double kValueBytes = 2;  // of activations and weights

// Operations of one layer for one micro-batch on one GPU.
struct LayerWork {
  double forward = 0, backward = 0;  // backward with what is recomputed
};

LayerWork layer_work(const Transformer& m, const Training& t) {
  const double matrix = layer_matrix_flops(m), attention = layer_attention_flops(m);
  const double again = t.recompute == Recompute::full        ? matrix + attention
                       : t.recompute == Recompute::selective ? attention
                                                             : 0;
  const double part = static_cast<double>(t.micro_batch) / t.sizes.tp / t.sizes.cp;
  return {part * (matrix + attention), part * (2 * (matrix + attention) + again)};
}

// Gathers the step's collectives of one stage.
class StageTraffic {
 public:
  StageTraffic(const Transformer& m, const Training& t, GroupPrices& prices) : m_(m), t_(t), prices_(prices) {
    const ParallelSizes& p = t.sizes;
    tp_ = {{1, p.tp}};
    cp_ = {{p.tp, p.cp}};
    ep_ = {{int64_t{p.tp} * p.cp, p.ep}};
    stage_stride_ = int64_t{p.tp} * p.cp * p.ep;
    const int64_t outer = stage_stride_ * p.pp;
    same_dense_ = {{p.tp, int64_t{p.cp} * p.ep}, {outer, p.dp}};
    same_expert_ = {{p.tp, p.cp}, {outer, p.dp}};
    tokens_ = static_cast<double>(t.micro_batch) * static_cast<double>(m.sequence) / p.cp;
  }

  // Of one micro-batch; seconds that are exposed.
  double tensor(int64_t layers, bool first, bool last) {
    const double bytes = tokens_ * static_cast<double>(m_.hidden) * kValueBytes;
    const double passes = t_.recompute == Recompute::full ? 3 : 2;  // over a layer's two collectives
    const double outside = static_cast<double>(first + last);       // embedding and head: one each way
    const double pairs = 2 * passes * static_cast<double>(layers) + outside;
    if (!t_.sequence_parallel) return add("tp", "activations", tp_, Coll::all_reduce, bytes, pairs, 1);
    return add("tp", "activations", tp_, Coll::all_gather, bytes, pairs, 1) +
           add("tp", "activations", tp_, Coll::reduce_scatter, bytes, pairs, 1) +
           add("tp", "for weights' gradients", tp_, Coll::all_gather, bytes, 2 * static_cast<double>(layers),
               0);
  }
  double context(int64_t layers) {
    const double kv = static_cast<double>(std::max<int64_t>(m_.kv() / t_.sizes.tp, 1) * m_.head_size());
    const double bytes = tokens_ * t_.sizes.cp * 2 * kv * kValueBytes;
    const double l = static_cast<double>(layers);
    return add("cp", "keys and values", cp_, Coll::all_gather, bytes,
               (t_.recompute == Recompute::full ? 3 : 2) * l, 1) +
           add("cp", "their gradients", cp_, Coll::reduce_scatter, bytes, l, 1);
  }
  double expert(int64_t layers) {
    if (m_.experts == 0) return 0;
    const double bytes = tokens_ / (t_.sequence_parallel ? t_.sizes.tp : 1) *
                         static_cast<double>(m_.experts_per_token * m_.hidden) * kValueBytes;
    const double passes = t_.recompute == Recompute::full ? 3 : 2;
    return add("ep", "tokens", ep_, Coll::all_to_all, bytes, 2 * passes * static_cast<double>(layers), 1);
  }
  double pipeline() {
    if (t_.sizes.pp == 1) return 0;
    const double bytes = tokens_ * static_cast<double>(m_.hidden) * kValueBytes;
    const double messages = 2.0 * t_.interleave;
    double s = add("pp", "activations", {{stage_stride_, t_.sizes.pp, true}}, Coll::broadcast,
                   bytes / t_.sizes.tp, messages, 1);
    // Each tensor-parallel rank sends its part of what all have; the receivers put it together.
    if (!t_.sequence_parallel && t_.sizes.tp > 1)
      s += add("tp", "messages' parts", tp_, Coll::all_gather, bytes, messages, 1);
    return s;
  }

  // Of the step. Windows: computation of a micro-batch that may hide it.
  double data(int stage, double forward_s, double backward_s) {
    const StageParameters p = parameters_of_stage(m_, t_, stage);
    const ParameterCount c = count_parameters(m_, t_.sizes.tp);
    const double layers = static_cast<double>(layers_of_stage(m_, t_, stage));
    double s = 0;
    struct Part {
      int64_t elements;
      const GroupShape* group;
      const char *gradients, *weights;
    };
    for (const Part& part : {Part{p.dense, &same_dense_, "gradients", "weights"},
                             Part{p.experts, &same_expert_, "experts' gradients", "experts' weights"}}) {
      if (part.elements == 0 || size_of(*part.group) == 1) continue;
      const double n = static_cast<double>(part.elements);
      const DataType gradient = t_.gradient_bytes == 4 ? DataType::float32 : DataType::bfloat16;
      const double each = static_cast<double>(t_.micro_batches());
      const auto reduce = [&](Coll coll, double calls) {
        s += hide(part.gradients, *part.group, coll, gradient, n * t_.gradient_bytes, calls, backward_s,
                  layers);
      };
      const auto gather = [&](double calls, double& window) {
        s += hide(part.weights, *part.group, Coll::all_gather, DataType::bfloat16, n * kValueBytes, calls,
                  window, layers);
      };
      if (t_.zero == 3) {
        gather(each, forward_s);
        gather(each, backward_s);
      }
      reduce(t_.zero < 2 ? Coll::all_reduce : Coll::reduce_scatter, t_.zero < 2 ? 1 : each);
      if (t_.zero == 1 || t_.zero == 2) gather(1, forward_s);
    }
    if (c.head == 0 && t_.sizes.pp > 1 && (stage == 0 || stage == t_.sizes.pp - 1))
      s += add("dp", "tied embedding's gradients", {{stage_stride_ * (t_.sizes.pp - 1), 2}}, Coll::all_reduce,
               static_cast<double>((m_.vocabulary + t_.sizes.tp - 1) / t_.sizes.tp * m_.hidden) *
                   t_.gradient_bytes,
               1, 1, 1);
    return s;
  }

  std::vector<Traffic> take() { return std::move(rows_); }

 private:
  // Returns what of all calls of one micro-batch is exposed; the row is of the step.
  double add(const char* axis, const char* what, const GroupShape& group, Coll coll, double bytes,
             double calls, double exposed, double times = 0) {
    if (size_of(group) == 1 || calls == 0 || bytes == 0) return 0;
    const DataType type = DataType::bfloat16;
    const GroupPrice& price = prices_.price(group, coll, type, bytes);
    const double repeats = times > 0 ? times : static_cast<double>(t_.micro_batches());
    push(axis, what, group, coll, price, bytes, calls * repeats, exposed * price.us * 1e-6 * calls * repeats);
    return exposed * price.us * 1e-6 * calls;
  }

  // Data-parallel calls that computation of `window` seconds hides each time; what they take of it is gone
  // for others.
  double hide(const char* what, const GroupShape& group, Coll coll, DataType type, double bytes, double calls,
              double& window, double layers) {
    const GroupPrice& price = prices_.price(group, coll, type, bytes);
    const double us = price.us * 1e-6;
    const double exposed = t_.overlap ? std::max(us - window, us / std::max(1.0, layers)) : us;
    window = std::max(0.0, window - us);
    push("dp", what, group, coll, price, bytes, calls, exposed * calls);
    return exposed * calls;
  }

  void push(const char* axis, const char* what, const GroupShape& group, Coll coll, const GroupPrice& price,
            double bytes, double calls, double exposed) {
    rows_.push_back({axis, what, coll, size_of(group), link_name(prices_.links(group)), price.algorithm,
                     bytes, calls, price.near_bytes * calls, price.far_bytes * calls, price.us * 1e-6 * calls,
                     exposed});
  }

  const Transformer& m_;
  const Training& t_;
  GroupPrices& prices_;
  GroupShape tp_, cp_, ep_, same_dense_, same_expert_;
  int64_t stage_stride_ = 1;
  double tokens_ = 0;
  std::vector<Traffic> rows_;
};

void find_bounds(TrainingEstimate& e) {
  const TrainingTime& t = e.time;
  const std::pair<const char*, double> parts[] = {{"computation", t.compute},
                                                  {"tensor-parallel communication", t.tensor},
                                                  {"context-parallel communication", t.context},
                                                  {"expert-parallel communication", t.expert},
                                                  {"messages between pipeline stages", t.pipeline},
                                                  {"the pipeline's idle time", t.idle},
                                                  {"data-parallel communication", t.data},
                                                  {"the optimizer", t.optimizer}};
  e.bound = std::max_element(std::begin(parts), std::end(parts), [](const auto& a, const auto& b) {
              return a.second < b.second;
            })->first;
  std::map<std::string, double> links;
  for (const Traffic& row : e.traffic) links[row.link] += row.exposed;
  for (const auto& [name, seconds] : links)
    if (seconds > e.link_seconds) {
      e.link_bound = name;
      e.link_seconds = seconds;
    }
}

}  // namespace

TrainingEstimate estimate_training(const Transformer& m, const Training& t, const GpuSpec& gpu,
                                   GroupPrices& prices) {
  check(m, t);
  if (t.sizes.ranks() != prices.ranks())
    fail(Result::invalid_argument, "the layout {} is of {} GPUs, and {} are there", to_string(t.sizes),
         t.sizes.ranks(), prices.ranks());
  if (!(gpu.peak_tflops > 0) || !(gpu.share > 0 && gpu.share <= 1) || !(gpu.memory_gb_per_s > 0) ||
      !(gpu.memory_gib > 0))
    fail(Result::invalid_argument,
         "a GPU of {} TFLOP/s, of which {} are reached, {} GiB, {} GB/s: positive numbers are wanted, and a "
         "share up to 1",
         gpu.peak_tflops, gpu.share, gpu.memory_gib, gpu.memory_gb_per_s);
  TrainingEstimate e;
  e.training = t;
  e.memory = peak_memory(m, t);
  e.fits = e.memory.use.total() <= gpu.memory_bytes();

  const double rate = gpu.peak_tflops * 1e12 * gpu.share;
  const LayerWork layer = layer_work(m, t);
  const double head = 3 * head_flops(m) * static_cast<double>(t.micro_batch) / t.sizes.tp / t.sizes.cp;
  const double micro_batches = static_cast<double>(t.micro_batches());
  const int pp = t.sizes.pp;
  double all = 0, slowest = -1;
  for (int stage = 0; stage < pp; ++stage) {
    const int64_t layers = layers_of_stage(m, t, stage);
    const double l = static_cast<double>(layers);
    const double compute = (l * (layer.forward + layer.backward) + (stage == pp - 1 ? head : 0)) / rate;
    StageTraffic traffic(m, t, prices);
    TrainingTime time;
    const double tensor = traffic.tensor(layers, stage == 0, stage == pp - 1);
    const double context = traffic.context(layers), expert = traffic.expert(layers),
                 messages = traffic.pipeline();
    const double micro_batch = compute + tensor + context + expert + messages;
    all += micro_batch;
    if (micro_batch <= slowest) continue;
    slowest = micro_batch;
    time.compute = micro_batches * compute;
    time.tensor = micro_batches * tensor;
    time.context = micro_batches * context;
    time.expert = micro_batches * expert;
    time.pipeline = micro_batches * messages;
    time.data = traffic.data(stage, l * layer.forward / rate, l * layer.backward / rate);
    const StageMemory use = memory_of_stage(m, t, stage);
    const double elements = use.master / 4;  // whose state this GPU has
    time.optimizer = elements * (t.gradient_bytes + 26) / (gpu.memory_gb_per_s * 1e9);
    e.time = time;
    e.traffic = traffic.take();
  }
  // Each chunk of the pipeline waits for the others of one micro-batch once.
  e.time.idle = (pp - 1) / static_cast<double>(t.interleave) * all / pp;
  e.idle_fraction = e.time.idle / (e.time.idle + micro_batches * slowest);

  const double batch = static_cast<double>(t.global_batch), seconds = e.time.total();
  const double gpus = static_cast<double>(t.sizes.ranks());
  const double tokens = batch * static_cast<double>(m.sequence);
  e.tokens_per_s = tokens / seconds;
  e.model_tflops = model_flops(m) * batch / gpus / seconds / 1e12;
  const double again = layer.forward + layer.backward -
                       3 * (layer_matrix_flops(m) + layer_attention_flops(m)) *
                           static_cast<double>(t.micro_batch) / t.sizes.tp /
                           t.sizes.cp;  // of a GPU, layer and micro-batch
  e.hardware_tflops =
      e.model_tflops + again * static_cast<double>(m.layers) / pp * micro_batches / seconds / 1e12;
  e.mfu = e.model_tflops / gpu.peak_tflops;
  e.over_six_nd = model_flops(m) * batch / (6 * static_cast<double>(active_parameters(m)) * tokens);
  find_bounds(e);
  return e;
}

}  // namespace muster
