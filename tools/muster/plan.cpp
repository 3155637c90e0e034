// `muster plan`: how a collective would run on the GPUs of a machine or cluster, or on this machine's memory,
// what it would take, and why.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithms.h"
#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "comm/host_topology.h"
#include "comm/tuning_profile.h"
#include "commands.h"
#include "gpu_options.h"
#include "plan/prediction.h"
#include "plan/trace.h"
#include "plan_host.h"
#include "plan_run.h"
#include "plan_text.h"
#include "program/program_json.h"
#include "quantities.h"
#include "say.h"
#include "speed_findings.h"
#include "topology/file.h"
#include "topology/read.h"

namespace muster::tool {
namespace {

struct PlanCommand {
  std::string collective, file, size = "1G", sizes, type = "float32", algorithm, protocol;
  int gpus_per_thread = 1, ranks = 0, root = 0;
  std::string trace;
  int rank = 0;
  bool rings = false, json = false, constants = false, host = false;
  bool program = false, dot = false, simulate = false, all_tiles = false;
};

uint64_t size_of_call(const std::string& text) {
  const std::optional<uint64_t> bytes = parse_size(text);
  if (!bytes)
    fail(Result::invalid_argument, "'{}' is no size: bytes are wanted, such as 8, 64K, 1.5M or 16G",
         printable(text, 60));
  if (*bytes < 1 || *bytes >> 62)
    fail(Result::invalid_argument, "a size of {} bytes ('{}'): 1 to less than 2^62 bytes are possible",
         *bytes, printable(text, 60));
  return *bytes;
}

DataType type_named(const std::string& name) {
  std::vector<std::string_view> names;
  for (int t = 0; t < kDataTypes; ++t) {
    if (name == name_of(static_cast<DataType>(t))) return static_cast<DataType>(t);
    names.push_back(name_of(static_cast<DataType>(t)));
  }
  fail(Result::invalid_argument, "'{}' is no data type. There are: {}", printable(name, 60),
       fmt::join(names, ", "));
}

topology::Cluster cluster_of(const PlanCommand& o, const Options& options) {
  if (o.file.empty()) return topology::cluster_of(host_topology(options));
  return topology::read_topology(topology::load_file(o.file), o.file == "-" ? "standard input" : o.file);
}

std::vector<RankPlace> places_of(const topology::Cluster& c, const PlanCommand& o) {
  const int ranks = o.ranks;
  std::vector<RankPlace> places = all_gpus(c);
  if (places.empty() && !o.file.empty())
    fail(Result::invalid_argument,
         "{} has no GPUs, for which is planned. Describe them (docs/topology.md), or plan for this machine's "
         "memory with --host instead of --topo",
         printable(o.file, 300));
  if (places.empty())
    fail(Result::invalid_argument,
         "there are no GPUs here. A machine or cluster that isn't here can be planned for: muster plan "
         "COLLECTIVE --topo FILE (docs/topology.md says how to write one)");
  if (ranks > static_cast<int>(places.size()))
    fail(Result::invalid_argument, "--ranks {}: there are {} GPUs. Take fewer ranks, or describe more hosts",
         ranks, places.size());
  if (ranks > 0) places.resize(static_cast<size_t>(ranks));
  return places;
}

std::vector<uint64_t> sizes_of(const PlanCommand& o) {
  if (o.sizes.empty()) return {size_of_call(o.size)};
  const size_t colon = o.sizes.find(':');
  if (colon == std::string::npos)
    fail(Result::invalid_argument, "--sizes '{}': FROM:TO is wanted, such as 8:16G", printable(o.sizes, 60));
  const uint64_t from = size_of_call(o.sizes.substr(0, colon)), to = size_of_call(o.sizes.substr(colon + 1));
  if (from > to)
    fail(Result::invalid_argument, "--sizes '{}': ascending sizes are wanted", printable(o.sizes, 60));
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = from;; bytes *= 2) {
    sizes.push_back(bytes);
    if (bytes > to / 2) return sizes;
  }
}

int plan_on_host(const PlanCommand& o, const CallShape& call, const topology::Cluster* cluster) {
  if (!o.protocol.empty() || o.gpus_per_thread != 1)
    fail(Result::invalid_argument,
         "{} is about GPUs, and there are none here: ranks on host memory are planned for",
         o.protocol.empty() ? "--gpus-per-thread" : "--protocol");
  if (o.program || o.dot || o.simulate || !o.trace.empty())
    fail(Result::invalid_argument,
         "--program, --dot, --simulate and --trace are about GPUs, and there are none here: name a topology "
         "that has some with --topo");
  say(host_plan({call, sizes_of(o), o.ranks, o.algorithm, o.json, cluster}));
  return 0;
}

std::string programs_text(const PlanCommand& o, const PlanRun& run, const Prediction& p) {
  constexpr int kMostDrawn = 64;
  const int ranks = p.links.spread.ranks;
  if (o.rank >= ranks)
    fail(Result::invalid_argument, "--rank {}: there are {} ranks, numbered from 0", o.rank, ranks);
  if (o.program && !o.json) return to_string(run.program(o.rank));
  if (o.dot && ranks > kMostDrawn)
    fail(Result::invalid_argument, "--dot draws up to {} ranks, and these are {}: --ranks N takes fewer",
         kMostDrawn, ranks);
  if (o.json && ranks > static_cast<int>(kMostProgramRanks))
    fail(Result::invalid_argument,
         "files of programs have up to {} ranks, and these are {}: --ranks N takes fewer", kMostProgramRanks,
         ranks);
  ProgramSet set;
  for (int r = 0; r < ranks; ++r) set.programs.push_back(run.program(r));
  if (o.dot) return to_dot(set.programs);
  set.name = p.best()->algorithm;
  set.idea = p.best()->known->idea;
  set.in_place = p.best()->known->in_place;
  return write_program_json(set);
}

int plan(const PlanCommand& o) {
  const Options options = Options::from_environment();
  const TuningProfile profile = load_tuning_profile(options);
  const Constants& constants = profile.constants ? *profile.constants : Constants::built_in();
  if (o.constants) return say(constants.to_text()), 0;
  if (o.rings && o.collective.empty()) {
    const topology::Cluster cluster = cluster_of(o, options);
    CallShape any;
    const std::vector<RankPlace> places = places_of(cluster, o);
    const GpuOptions set = gpu_options(options, {}, links_of(cluster, places).spread.hosts, any);
    return say(rings_text(find_rings(cluster, places, {.cross_nic = set.cross_nic}))), 0;
  }
  if (o.collective.empty())
    fail(Result::invalid_argument, "muster plan: a collective is wanted, such as all_reduce");
  CallShape call{collective_named(o.collective), type_named(o.type), RedOp::sum, o.root, 1};
  if (!rooted(call.coll) && o.root != 0)
    fail(Result::invalid_argument, "--root {}: {} has no root", o.root, name_of(call.coll));
  const bool here = o.file.empty();
  const topology::Cluster cluster = o.host && here ? topology::Cluster{} : cluster_of(o, options);
  const bool several = cluster.host_count() > 1;
  if (o.host || ((here || several) && !o.rings && all_gpus(cluster).empty()))
    return plan_on_host(o, call, here ? nullptr : &cluster);

  const std::vector<RankPlace> places = places_of(cluster, o);
  const Links links = links_of(cluster, places, constants);
  if (o.root >= links.spread.ranks)
    fail(Result::invalid_argument, "--root {}: ranks are 0 to {}", o.root, links.spread.ranks - 1);
  PredictOptions given;
  given.per_thread = o.gpus_per_thread;
  given.algorithm = o.algorithm;
  given.protocol = o.protocol;
  GpuOptions set = gpu_options(options, given, links.spread.hosts, call);
  if (o.rings)
    return say(effects_text(set.effects) + rings_text(find_rings(cluster, places, {.cross_nic = set.cross_nic}))), 0;

  PlanReport report;
  report.file = o.file;
  report.profile = profile.file;
  report.options = std::move(set.effects);
  report.findings = speed_findings(cluster, links.spread.hosts);
  const std::vector<uint64_t> sizes = sizes_of(o);
  report.rows = predict_sizes(call, sizes.front(), sizes.back(), links, constants, set.predict);
  const Prediction& first = report.rows.front().prediction;
  if (o.program || o.dot || o.simulate || !o.trace.empty()) {
    if (!first.best()) fail(Result::invalid_argument, "{}", reason_for_none(first));
    const PlanRun run(cluster, places, first, *first.best(), set.cross_nic);
    if (o.program || o.dot) return say(programs_text(o, run, first)), 0;
    if (links.spread.ranks == 1)
      fail(Result::invalid_argument,
           "one rank sends nothing, so there is nothing to simulate: the plan without {} says what its copy "
           "takes",
           o.simulate ? "--simulate" : "--trace");
    constexpr uint64_t kTiles = 16;  // of a loop; more go on alike
    report.simulation =
        run.simulate(constants, o.gpus_per_thread, !o.trace.empty(), o.all_tiles ? 0 : kTiles);
    if (!o.trace.empty()) write_file(o.trace, chrome_trace(*report.simulation));
  }
  say(o.json ? json_text(report) : o.sizes.empty() ? detail_text(report) : table_text(report));
  return 0;
}

void exclude(CLI::Option* one, std::initializer_list<CLI::Option*> others) {
  for (CLI::Option* other : others) one->excludes(other);
}

}  // namespace

void add_plan(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "plan",
      "Show how a collective would run on the GPUs of this machine or of one that a file describes, "
      "or on this machine's memory, what it would take, and why");
  const auto o = std::make_shared<PlanCommand>();
  constexpr int kMany = std::numeric_limits<int>::max();
  CLI::Option* const collective = command->add_option(
      "collective", o->collective,
      "all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, gather or scatter");
  CLI::Option* const topo =
      command
          ->add_option("--topo,--cluster", o->file,
                       "A topology or a cluster's description, as muster topo reads it; - is standard input. "
                       "Without it: this machine")
          ->type_name("FILE");
  CLI::Option* const size =
      command
          ->add_option("--size", o->size,
                       "Bytes, as nccl-tests counts them; K, M, G and T are powers of 1024")
          ->capture_default_str();
  CLI::Option* const sizes =
      command
          ->add_option(
              "--sizes", o->sizes,
              "Instead: a table of sizes FROM:TO, doubling, with the sizes where the choice switches")
          ->type_name("FROM:TO");
  CLI::Option* const type = command->add_option("--type", o->type, "Data type")->capture_default_str();
  CLI::Option* const root =
      command->add_option("--root", o->root, "Of a broadcast, reduce, gather or scatter")
          ->check(CLI::Range(0, kMany))
          ->type_name("RANK")
          ->capture_default_str();
  CLI::Option* const ranks = command
                                 ->add_option("--ranks", o->ranks,
                                              "Only so many, in the order of hosts and GPUs. On host memory: "
                                              "so many; without it one per core here, one per host of --topo")
                                 ->check(CLI::Range(1, kMany))
                                 ->type_name("N");
  CLI::Option* const algorithm = command->add_option("--algorithm", o->algorithm, "Only this one");
  CLI::Option* const protocol = command->add_option(
      "--protocol", o->protocol,
      "Only this one: LL, LL128 or simple; several separated by commas; ^LL: all but this one");
  CLI::Option* const per_thread =
      command
          ->add_option("--gpus-per-thread", o->gpus_per_thread,
                       "GPUs that one thread of the program launches for (nccl-tests: -g)")
          ->check(CLI::Range(1, 1024))
          ->capture_default_str();
  CLI::Option* const host =
      command->add_flag(
          "--host", o->host,
          "Ranks on host memory, this machine's or that of the hosts of --topo, as where there are no GPUs");
  CLI::Option* const rings = command->add_flag("--rings", o->rings, "The rings found on the links, instead");
  CLI::Option* const program = command->add_flag(
      "--program", o->program,
      "The chosen program of one rank, step by step, instead; with --json those of all, for MUSTER_PROGRAM");
  CLI::Option* const rank = command->add_option("--rank", o->rank, "Whose program: 0 if not given")
                                ->check(CLI::Range(0, kMany))
                                ->type_name("R");
  CLI::Option* const dot =
      command->add_flag("--dot", o->dot, "The chosen programs of all ranks as a graph for Graphviz, instead");
  CLI::Option* const simulate = command->add_flag(
      "--simulate", o->simulate,
      "Run the chosen programs on the links, event by event: time, and what each link carries");
  CLI::Option* const all_tiles =
      command->add_flag("--all-tiles", o->all_tiles,
                        "Simulate every tile, not 16 of each loop; takes as long as there are bytes");
  CLI::Option* const trace =
      command
          ->add_option("--trace", o->trace,
                       "Simulate, and write a timeline: a Chrome trace, for ui.perfetto.dev")
          ->type_name("FILE");
  CLI::Option* const json = command->add_flag("--json", o->json, "For programs");
  CLI::Option* const constants =
      command->add_flag("--constants", o->constants,
                        "The numbers that prices are made of, and where each is from; those of a tuning "
                        "profile go before those built in");
  // What can't be had together is refused; nothing is passed over in silence.
  exclude(sizes, {size, program, dot, simulate, trace});
  exclude(program, {dot, simulate, trace});
  exclude(dot, {json, rank, simulate, trace});
  exclude(host, {protocol, per_thread, program, dot, simulate, trace});
  exclude(rings, {size, sizes, type, root, algorithm, protocol, per_thread, host, program, dot, simulate,
                  trace, json});
  exclude(constants, {collective, topo, size, sizes, type, root, ranks, algorithm, protocol, per_thread, host,
                      rings, program, dot, simulate, trace, json});
  rank->needs(program)->excludes(json);
  command->callback([o, all_tiles, simulate, trace, &status] {
    if (all_tiles->count() && !simulate->count() && !trace->count())
      throw CLI::ValidationError("--all-tiles", "is for --simulate or --trace");
    status = plan(*o);
  });
}

}  // namespace muster::tool
