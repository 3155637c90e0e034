// `muster estimate`: what training a model takes on a cluster that need not be here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "comm/tuning_profile.h"
#include "commands.h"
#include "estimate_text.h"
#include "muster/mesh.h"
#include "parallel/nvlink_domains.h"
#include "plan/constants.h"
#include "say.h"
#include "topology/file.h"
#include "topology/host_description.h"
#include "topology/read.h"

namespace muster::tool {
namespace {

struct EstimateCommand {
  std::string preset;
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0, vocabulary = 0, sequence = 0, experts = 0;
  int64_t experts_per_token = 0;
  std::string family;
  std::string file, ready = "dgx-h100";
  std::string layout;
  int zero = 0, interleave = 1, gpus = 0;
  int64_t micro_batch = 1, global_batch = 0;
  std::string recompute = "selective", gradients = "bfloat16";
  bool no_sequence_parallel = false, no_overlap = false;
  double peak = 0, memory = 0, memory_rate = 0, share = 0;
  bool search = false, json = false, models = false;
  int most = 10;
  std::string svg;
};

void set(int64_t& size, int64_t given, const char* what) {
  if (given < 0) fail(Result::invalid_argument, "--{} {}: a positive number is wanted", what, given);
  if (given > 0) size = given;
}

Transformer model_of(const EstimateCommand& o) {
  Transformer m;
  if (!o.preset.empty()) m = transformer_preset(o.preset);
  const Transformer before = m;
  if (o.family == "gpt" || o.family == "llama")
    m.family = o.family == "gpt" ? TransformerFamily::gpt : TransformerFamily::llama;
  else if (!o.family.empty())
    fail(Result::invalid_argument, "--family '{}': gpt or llama", printable(o.family, 40));
  set(m.layers, o.layers, "layers");
  set(m.hidden, o.hidden, "hidden");
  set(m.heads, o.heads, "heads");
  set(m.kv_heads, o.kv_heads, "kv-heads");
  set(m.ffn, o.ffn, "ffn");
  set(m.vocabulary, o.vocabulary, "vocab");
  set(m.sequence, o.sequence, "sequence");
  set(m.experts, o.experts, "experts");
  set(m.experts_per_token, o.experts_per_token, "experts-per-token");
  if (o.preset.empty() &&
      (m.layers == 0 || m.hidden == 0 || m.heads == 0 || m.vocabulary == 0 || m.sequence == 0))
    fail(Result::invalid_argument,
         "a model is wanted: a preset (--models lists them), or --layers, --hidden, --heads, --vocab and "
         "--sequence");
  if (m.layers != before.layers || m.hidden != before.hidden) m.name.clear();
  check(m);
  return m;
}

topology::Cluster cluster_of(const EstimateCommand& o, int64_t ranks) {
  if (!o.file.empty())
    return topology::read_topology(topology::load_file(o.file), o.file == "-" ? "standard input" : o.file);
  std::optional<topology::Machine> host = topology::ready_host(o.ready);
  if (!host) {
    std::vector<std::string_view> names;
    for (const topology::ReadyHost& r : topology::ready_hosts()) names.push_back(r.name);
    fail(Result::invalid_argument, "--host '{}': there are {}; others can be described in a --cluster FILE",
         printable(o.ready, 60), fmt::join(names, ", "));
  }
  topology::Cluster c = topology::cluster_of(std::move(*host));
  const int64_t gpus = c.gpu_count();
  c.hosts[0].count = static_cast<int>((ranks + gpus - 1) / gpus);
  c.hosts[0].name = "node";
  return c;
}

GpuSpec gpu_of(const EstimateCommand& o, const topology::Cluster& c) {
  std::string model;
  for (const auto& shape : c.shapes)
    for (const int gpu : shape->all(topology::Kind::gpu))
      model = model.empty() ? shape->gpu(gpu).model : model;
  for (const auto& [value, name] :
       {std::pair{o.peak, "peak"}, std::pair{o.memory, "memory"},
        std::pair{o.memory_rate, "memory-bandwidth"}, std::pair{o.share, "share"}})
    if (value < 0) fail(Result::invalid_argument, "--{} {}: a positive number is wanted", name, value);
  GpuSpec g;
  if (o.peak > 0 && o.memory > 0 && o.memory_rate > 0 && o.share > 0)
    g.name = model.empty() ? "GPU" : model;
  else
    g = gpu_spec(model);
  if (o.peak > 0) g.peak_tflops = o.peak;
  if (o.memory > 0) g.memory_gib = o.memory;
  if (o.memory_rate > 0) g.memory_gb_per_s = o.memory_rate;
  if (o.share > 0) {
    g.share = o.share;
    g.share_source = "--share";
  }
  if (g.share > 1) fail(Result::invalid_argument, "--share {}: up to 1 of the peak can be reached", g.share);
  return g;
}

std::string describe(const topology::Cluster& c, int64_t ranks) {
  const std::string of = ranks < c.gpu_count() ? fmt::format(" of {}", c.gpu_count()) : "";
  return fmt::format("{}{} GPUs, {} host{}", ranks, of, c.host_count(), c.host_count() == 1 ? "" : "s");
}

std::string models_text() {
  std::string text = fmt::format("{:<14} {:>22} {:>6} {:>6} {:>5} {:>8} {:>7} {:>7} {:>8} {:>8}  {}\n",
                                 "model", "parameters", "layers", "hidden", "heads", "kv heads", "ffn",
                                 "vocab", "sequence", "experts", "source");
  for (const Transformer& m : transformer_presets())
    text += fmt::format("{:<14} {:>22} {:>6} {:>6} {:>5} {:>8} {:>7} {:>7} {:>8} {:>8}  {}\n", m.name,
                        total_parameters(m), m.layers, m.hidden, m.heads, m.kv(), m.inner(), m.vocabulary,
                        m.sequence, m.experts, m.source);
  return text;
}

int estimate(const EstimateCommand& o) {
  if (o.models) return say(models_text()), 0;
  EstimateReport report;
  report.model = model_of(o);
  report.search = o.search;
  Training t;
  t.zero = o.zero;
  t.interleave = o.interleave;
  t.micro_batch = o.micro_batch;
  t.recompute = recompute_named(o.recompute);
  t.sequence_parallel = !o.no_sequence_parallel;
  t.overlap = !o.no_overlap;
  if (o.gradients != "bfloat16" && o.gradients != "float32")
    fail(Result::invalid_argument, "--gradients '{}': bfloat16 or float32", printable(o.gradients, 40));
  t.gradient_bytes = o.gradients == "float32" ? 4 : 2;
  if (o.search == !o.layout.empty())
    fail(Result::invalid_argument,
         "a layout is wanted, --layout tp=8,pp=16,dp=128, or --search for the best");
  if (o.gpus < 0) fail(Result::invalid_argument, "--gpus {}: a positive number is wanted", o.gpus);
  if (o.search && o.file.empty() && o.gpus == 0)
    fail(Result::invalid_argument,
         "--search: on which GPUs? --cluster FILE, or --gpus N of hosts as --host says");
  if (!o.layout.empty()) t.sizes = parse_layout(o.layout);
  const int64_t wanted = o.search ? o.gpus : t.sizes.ranks();
  const topology::Cluster cluster = cluster_of(o, wanted);
  const int64_t ranks = wanted > 0 ? wanted : cluster.gpu_count();
  if (o.global_batch < 0)
    fail(Result::invalid_argument, "--global-batch {}: a positive number is wanted", o.global_batch);
  if (o.global_batch == 0 && o.search)
    fail(Result::invalid_argument, "--search compares layouts at one --global-batch: sequences per step");
  // Enough to keep the pipeline busy: four micro-batches for each stage.
  t.global_batch = o.global_batch > 0 ? o.global_batch
                                      : t.sizes.replicas() * std::max<int64_t>(1, o.micro_batch) *
                                            (t.sizes.pp > 1 ? 4 * int64_t{t.sizes.pp} : 1);

  const TuningProfile profile = load_tuning_profile(Options::from_environment());
  const Constants& constants = profile.constants ? *profile.constants : Constants::built_in();
  report.gpu = gpu_of(o, cluster);
  GroupPrices prices(cluster, ranks, constants);
  report.cluster = describe(cluster, ranks);
  if (o.search) {
    LayoutSearch found = search_layouts(report.model, t, report.gpu, prices, static_cast<size_t>(o.most));
    report.possible = found.possible;
    report.fit = found.fit;
    report.estimates = std::move(found.ranked);
    if (report.estimates.empty())
      fail(Result::invalid_argument,
           "no layout of {} GPUs with {} GiB each holds it ({} were tried): its state alone needs {} of "
           "them, activations more",
           ranks, report.gpu.memory_gib, report.possible,
           least_devices(report.model, report.gpu.memory_bytes(), t.gradient_bytes));
  } else {
    report.estimates.push_back(estimate_training(report.model, t, report.gpu, prices));
    std::vector<int> domains = nvlink_domains(cluster);
    domains.resize(static_cast<size_t>(ranks));
    report.notes = placement_warnings(Mesh::parse(to_string(t.sizes)), domains);
  }
  if (!o.svg.empty()) write_file(o.svg, estimate_svg(report));
  say(o.json ? estimate_json(report) : estimate_text(report));
  return 0;
}

}  // namespace

void add_estimate(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("estimate",
                                         "What training a model takes on a cluster that need not be here: "
                                         "memory, traffic, time, and what bounds it");
  const auto o = std::make_shared<EstimateCommand>();
  command->add_option("model", o->preset, "A preset, such as llama3-70b; sizes below go before its own");
  command->add_flag("--models", o->models, "The presets, and where their numbers are from");
  command->add_option("--layers", o->layers, "Of a model without a preset");
  command->add_option("--hidden", o->hidden, "Size of a token's vector");
  command->add_option("--heads", o->heads, "Of attention");
  command->add_option("--kv-heads", o->kv_heads, "Key/value heads; without it as many as heads");
  command->add_option("--ffn", o->ffn, "Inner size of the feed-forward part; without it 4 times --hidden");
  command->add_option("--vocab", o->vocabulary, "Tokens that there are");
  command->add_option("--sequence", o->sequence, "Tokens of a sequence");
  command->add_option("--experts", o->experts, "Of each layer; without it the layers are dense");
  command->add_option("--experts-per-token", o->experts_per_token, "2 if not given");
  command->add_option(
      "--family", o->family,
      "gpt (biases, GELU, dropout, learned positions, tied head) or llama (SwiGLU, RMSNorm), the default");
  CLI::Option* const file = command
                                ->add_option("--cluster,--topo", o->file,
                                             "A topology or a cluster's description, as muster topo reads it")
                                ->type_name("FILE");
  command->add_option("--host", o->ready, "Without --cluster: as many hosts of this type as the layout needs")
      ->capture_default_str()
      ->excludes(file);
  CLI::Option* const layout =
      command
          ->add_option("--layout", o->layout,
                       "Sizes of the axes, innermost first: tp=8,pp=16,dp=128; also cp and ep")
          ->type_name("AXES");
  CLI::Option* const zero =
      command
          ->add_option("--zero", o->zero,
                       "ZeRO's stage: 1 shards optimizer state, 2 gradients, too, 3 weights, too")
          ->capture_default_str();
  CLI::Option* const micro =
      command->add_option("--micro-batch", o->micro_batch, "Sequences at a time")->capture_default_str();
  command->add_option(
      "--global-batch", o->global_batch,
      "Sequences of a step; without it one micro-batch per replica, with pipelines 4 for each stage");
  CLI::Option* const interleave =
      command->add_option("--interleave", o->interleave, "Chunks of layers per pipeline stage")
          ->capture_default_str();
  CLI::Option* const recompute =
      command
          ->add_option("--recompute", o->recompute,
                       "none, selective (attention's scores; FlashAttention, too) or full")
          ->capture_default_str();
  command->add_option("--gradients", o->gradients, "bfloat16 or float32: their type, kept and sent")
      ->capture_default_str();
  command->add_flag("--no-sequence-parallel", o->no_sequence_parallel,
                    "What tensors don't split is on every rank");
  command->add_flag("--no-overlap", o->no_overlap, "Data-parallel communication waits for computation");
  command->add_option("--peak", o->peak, "TFLOP/s of a GPU, in place of its data sheet's");
  command->add_option("--share", o->share,
                      "Of the peak, reached while it computes; without it a published measurement's");
  command->add_option("--memory", o->memory, "GiB of a GPU, in place of its data sheet's");
  command->add_option("--memory-bandwidth", o->memory_rate, "GB/s of it, in place of its data sheet's");
  CLI::Option* const search =
      command->add_flag("--search", o->search, "Instead of a layout: those that fit, the fastest first");
  command->add_option("--gpus", o->gpus, "So many, of the cluster's or of hosts of --host's type")
      ->needs(search);
  command->add_option("--most", o->most, "So many of them are shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->needs(search);
  command->add_flag("--json", o->json, "For programs");
  command->add_option("--svg", o->svg, "Also write bars of memory and time")->type_name("FILE");
  for (CLI::Option* const one : {layout, zero, micro, interleave, recompute}) search->excludes(one);
  command->callback([o, &status] { status = estimate(*o); });
}

}  // namespace muster::tool
