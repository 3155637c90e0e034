// `muster plan`: how a collective would run on the GPUs of a machine or cluster, or on this machine's memory,
// what it would take, and why.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "algorithms/algorithms.h"
#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "comm/host_topology.h"
#include "commands.h"
#include "plan/prediction.h"
#include "plan/trace.h"
#include "plan_host.h"
#include "plan_run.h"
#include "quantities.h"
#include "say.h"
#include "topology/file.h"
#include "topology/read.h"

namespace muster::tool {
namespace {

struct PlanCommand {
  std::string collective, file, size = "1G", sizes, type = "float32", algorithm, protocol;
  int gpus_per_thread = 1, ranks = 0, root = 0;
  std::string trace;
  int rank = -1;
  bool rings = false, json = false, constants = false, host = false;
  bool program = false, dot = false, simulate = false, all_tiles = false;
};

uint64_t parse_size(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  int shift = 0;
  bool good = error == std::errc() && std::isfinite(value) && value >= 0;
  if (good && rest != end) {
    const size_t unit = std::string_view("KMGT").find(static_cast<char>(*rest & ~0x20));
    good = unit != std::string_view::npos && rest + 1 == end;
    shift = static_cast<int>(10 * (unit + 1));
  }
  value = std::ldexp(value, shift);
  if (!good || value < 1 || value >= 0x1p62)
    fail(Result::invalid_argument, "'{}' is no size: bytes are wanted, such as 8, 64K, 1.5M or 16G",
         printable(text, 60));
  return static_cast<uint64_t>(value);
}

Coll collective_named(const std::string& name) {
  std::string plain = lower(name);
  std::erase(plain, '_');
  std::vector<std::string_view> names;
  for (int c = 0; c < kColls; ++c) {
    const Coll coll = static_cast<Coll>(c);
    if (is_uneven(coll) || coll == Coll::send_recv) continue;
    std::string known = name_of(coll);
    names.push_back(name_of(coll));
    std::erase(known, '_');
    if (plain == known) return coll;
  }
  fail(Result::invalid_argument, "'{}' is no collective. There are: {}", printable(name, 60),
       fmt::join(names, ", "));
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

topology::Cluster cluster_of(const PlanCommand& o) {
  if (o.file.empty()) return topology::cluster_of(host_topology(Options::inspect()));
  return topology::read_topology(topology::load_file(o.file), o.file == "-" ? "standard input" : o.file);
}

std::vector<RankPlace> places_of(const topology::Cluster& c, int ranks) {
  std::vector<RankPlace> places = all_gpus(c);
  if (places.empty())
    fail(Result::invalid_argument,
         "there are no GPUs here. A machine or cluster that isn't here can be planned for: muster plan "
         "COLLECTIVE --topo FILE (docs/topology.md says how to write one)");
  if (ranks < 0 || ranks > static_cast<int>(places.size()))
    fail(Result::invalid_argument, "--ranks {}: there are {} GPUs", ranks, places.size());
  if (ranks > 0) places.resize(static_cast<size_t>(ranks));
  return places;
}

std::string links_text(const Links& l) {
  std::string text = fmt::format("{} rank{} on {} host{}", l.spread.ranks, l.spread.ranks == 1 ? "" : "s",
                                 l.spread.hosts, l.spread.hosts == 1 ? "" : "s");
  if (l.spread.per_host > 1)
    text += fmt::format("; inside a host {}: {} ring{} of {:.4g} GB/s together", name_of(l.near),
                        l.near_channels, l.near_channels == 1 ? "" : "s", l.rings);
  if (l.spread.hosts > 1)
    text += fmt::format(
        "; a host's ports: {:.4g} GB/s{}", l.ports,
        l.network == topology::Network::unknown ? "" : fmt::format(" ({})", topology::name_of(l.network)));
  return text + "\n";
}

std::string bound_text(const Prediction& p, const Price& price) {
  switch (price.bound) {
    case Bound::launch:
      return "launching the kernels";
    case Bound::latency:
      return "latency: messages that follow one another";
    case Bound::near_links:
      return fmt::format("{} links inside hosts, {:.4g} GB/s reached", name_of(p.links.near),
                         price.near_gbytes_per_s);
    case Bound::ports:
      return fmt::format("the network ports of a host, {:.4g} GB/s reached", price.far_gbytes_per_s);
  }
  return "";
}

std::string parts_text(const Price& p) {
  return fmt::format("launch {} + latency {} + transfer {} + ramp {}", time_text(p.launch_us),
                     time_text(p.latency_us), time_text(p.transfer_us), time_text(p.ramp_us));
}

std::string text_of(const Prediction& p, uint64_t bytes) {
  std::string text =
      fmt::format("{} of {}B, {}: ", name_of(p.call.coll), size_text(bytes), name_of(p.call.type)) +
      links_text(p.links);
  const Candidate* const best = p.best();
  if (!best) {
    text += "no algorithm serves:\n";
    for (const Candidate& c : p.candidates)
      text += fmt::format("{:<18} {:<8} {}\n", c.algorithm, name_of(c.protocol), c.obstacle);
    return text;
  }
  text += fmt::format("\nchosen     {} ({}), {}, {} channel{}, messages of up to {}B\n", best->algorithm,
                      best->known->idea, name_of(best->protocol), best->channels,
                      best->channels == 1 ? "" : "s", size_text(best->chunk_bytes));
  const double us = best->price.us();
  text += fmt::format("takes      {}: {}\n", time_text(us), parts_text(best->price));
  text += fmt::format("bandwidth  {:.2f} GB/s algbw, {:.2f} GB/s busbw\n", p.algbw(us), p.busbw(us));
  text += fmt::format("bound by   {}\n", bound_text(p, best->price));
  text += fmt::format("roof       {} by {}: this is {:.0f} % of it\n", time_text(p.roof.us), p.roof.what,
                      us > 0 ? 100 * p.roof.us / us : 0);
  text += fmt::format("\n{:<18} {:<8} {:>12} {:>10} {:>10}   why not\n", "others", "protocol", "time",
                      "algbw", "busbw");
  for (const Candidate& c : p.candidates) {
    if (&c == best) continue;
    const double t = c.price.us();
    const std::string why = c.obstacle.empty()
                                ? fmt::format("{:.3g} times as long; {}", t / us, bound_text(p, c.price))
                                : c.obstacle;
    text += fmt::format("{:<18} {:<8} {:>12} {:>10.2f} {:>10.2f}   {}\n", c.algorithm, name_of(c.protocol),
                        time_text(t), p.algbw(t), p.busbw(t), why);
  }
  return text;
}

std::string table_text(const std::vector<SizeRow>& rows) {
  std::string text = fmt::format("{:>8}  {:<18} {:<8} {:>8} {:>12} {:>10} {:>10}  {}\n", "size", "algorithm",
                                 "protocol", "channels", "time", "algbw", "busbw", "");
  std::string before;
  for (const SizeRow& r : rows) {
    const Candidate* const c = r.prediction.best();
    if (!c) continue;
    const std::string now = fmt::format("{} {}", c->algorithm, name_of(c->protocol));
    const double t = c->price.us();
    text += fmt::format("{:>8}  {:<18} {:<8} {:>8} {:>12} {:>10.2f} {:>10.2f}  {}\n", size_text(r.bytes),
                        c->algorithm, name_of(c->protocol), c->channels, time_text(t), r.prediction.algbw(t),
                        r.prediction.busbw(t), !before.empty() && now != before ? "<- switches" : "");
    before = now;
  }
  return text;
}

std::string rings_text(const topology::Cluster& cluster, const std::vector<RankPlace>& places) {
  const Rings rings = find_rings(cluster, places);
  std::string text = fmt::format("{} ring{}, {:.4g} GB/s together; farthest hop inside hosts {}",
                                 rings.channels.size(), rings.channels.size() == 1 ? "" : "s",
                                 rings.gbytes_per_s(), topology::name_of(rings.inside));
  text += rings.fallback ? "; none found on the links: in the order of ranks\n" : "\n";
  constexpr size_t kMostShown = 64;
  for (size_t c = 0; c < rings.channels.size(); ++c) {
    const std::vector<int>& order = rings.channels[c].ranks;
    const bool cut = order.size() > kMostShown;
    text += fmt::format(
        "{:>4}  {:>8.4g} GB/s  {}{}\n", c, rings.channels[c].gbytes_per_s,
        fmt::join(order.begin(),
                  order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), kMostShown)), " "),
        cut ? fmt::format(" ... ({} ranks)", order.size()) : "");
  }
  return text;
}

nlohmann::ordered_json json_of(const Candidate& c, const Prediction& p) {
  const double us = c.price.us();
  nlohmann::ordered_json j;
  j["algorithm"] = c.algorithm;
  j["protocol"] = name_of(c.protocol);
  j["channels"] = c.channels;
  j["chunk_bytes"] = c.chunk_bytes;
  j["microseconds"] = us;
  j["parts"] = {{"launch", c.price.launch_us},
                {"latency", c.price.latency_us},
                {"transfer", c.price.transfer_us},
                {"ramp", c.price.ramp_us}};
  j["algbw"] = p.algbw(us);
  j["busbw"] = p.busbw(us);
  if (!c.obstacle.empty()) j["obstacle"] = c.obstacle;
  return j;
}

std::string json_text(const std::vector<SizeRow>& rows) {
  nlohmann::ordered_json j;
  j["muster_plan"] = 1;  // of this layout
  const Prediction& first = rows.front().prediction;
  j["collective"] = name_of(first.call.coll);
  j["type"] = name_of(first.call.type);
  j["ranks"] = first.links.spread.ranks;
  j["hosts"] = first.links.spread.hosts;
  for (const SizeRow& r : rows) {
    nlohmann::ordered_json size;
    size["bytes"] = r.bytes;
    size["roof_microseconds"] = r.prediction.roof.us;
    size["roof"] = r.prediction.roof.what;
    size["candidates"] = nlohmann::ordered_json::array();  // the first is chosen, if it has no obstacle
    for (const Candidate& c : r.prediction.candidates) size["candidates"].push_back(json_of(c, r.prediction));
    j["sizes"].push_back(std::move(size));
  }
  return j.dump(2) + "\n";
}

std::vector<uint64_t> sizes_of(const PlanCommand& o) {
  if (o.sizes.empty()) return {parse_size(o.size)};
  const size_t colon = o.sizes.find(':');
  if (colon == std::string::npos)
    fail(Result::invalid_argument, "--sizes '{}': FROM:TO is wanted, such as 8:16G", printable(o.sizes, 60));
  const uint64_t from = parse_size(o.sizes.substr(0, colon)), to = parse_size(o.sizes.substr(colon + 1));
  if (from > to)
    fail(Result::invalid_argument, "--sizes '{}': ascending sizes are wanted", printable(o.sizes, 60));
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = from;; bytes *= 2) {
    sizes.push_back(bytes);
    if (bytes > to / 2) return sizes;
  }
}

int plan_on_host(const PlanCommand& o, const CallShape& call) {
  if (!o.protocol.empty() || o.gpus_per_thread != 1)
    fail(Result::invalid_argument,
         "{} is about GPUs, and there are none here: ranks on host memory are planned for",
         o.protocol.empty() ? "--gpus-per-thread" : "--protocol");
  if (o.program || o.dot || o.simulate || !o.trace.empty())
    fail(Result::invalid_argument,
         "--program, --dot, --simulate and --trace are about GPUs, and there are none here: name a topology "
         "with --topo");
  say(host_plan({call, sizes_of(o), o.ranks, o.algorithm, o.json}));
  return 0;
}

// What a plan's programs do on the links when they are run, beside what formulas say of it.
std::string simulation_text(const Prediction& p, const Candidate& c, const Simulation& s) {
  const double us = c.price.us();
  std::string text = fmt::format(
      "\nsimulated  {} ({:+.1f} % of the price, {:+.1f} % of it without ramp), {:.2f} GB/s algbw, {:.2f} "
      "GB/s busbw; {} steps run{}\n",
      time_text(s.time_us), 100 * (s.time_us / us - 1), 100 * (s.time_us / (us - c.price.ramp_us) - 1),
      p.algbw(s.time_us), p.busbw(s.time_us), s.steps,
      !s.extrapolated                     ? ""
      : p.links.spread.ranks > kMostExact ? ", of two smaller clusters of the same hosts"
                                          : ", the tiles after them taken to go on alike");
  std::vector<const Simulation::Use*> uses;
  for (const Simulation::Use& u : s.uses) uses.push_back(&u);
  std::stable_sort(uses.begin(), uses.end(),
                   [](const auto* a, const auto* b) { return a->utilisation > b->utilisation; });
  constexpr size_t kShown = 12;
  text += fmt::format("{:<44} {:>10} {:>14} {:>6}\n", "busiest links", "GB/s", "bytes", "used");
  for (size_t i = 0; i < std::min(uses.size(), kShown); ++i)
    text += fmt::format("{:<44} {:>10.4g} {:>14.0f} {:>4.0f} %\n", uses[i]->resource.name,
                        uses[i]->resource.gb_per_s, uses[i]->bytes, 100 * uses[i]->utilisation);
  if (uses.size() > kShown) text += fmt::format("... and {} more\n", uses.size() - kShown);
  return text;
}

constexpr int kMostDrawn = 64;  // ranks of a picture

int show_programs(const PlanCommand& o, const PlanRun& run, int ranks) {
  if (o.rank < -1 || o.rank >= ranks)
    fail(Result::invalid_argument, "--rank {}: ranks are 0 to {}", o.rank, ranks - 1);
  if (!o.dot) return say(to_string(run.program(std::max(0, o.rank)))), 0;
  if (ranks > kMostDrawn)
    fail(Result::invalid_argument, "--dot draws up to {} ranks, and these are {}: --ranks N takes fewer",
         kMostDrawn, ranks);
  std::vector<Program> all;
  for (int r = 0; r < ranks; ++r) all.push_back(run.program(r));
  return say(to_dot(all)), 0;
}

std::string simulated(const PlanCommand& o, const PlanRun& run, const Prediction& p) {
  constexpr uint64_t kTiles = 16;  // of a loop; more go on alike
  const Simulation s =
      run.simulate(Constants::built_in(), o.gpus_per_thread, !o.trace.empty(), o.all_tiles ? 0 : kTiles);
  if (!o.trace.empty()) {
    std::FILE* const file = std::fopen(o.trace.c_str(), "w");
    if (!file) fail_errno(errno, "can't write " + o.trace);
    const std::string text = chrome_trace(s);
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) != 0 || !written) fail_errno(errno, "can't write " + o.trace);
  }
  return simulation_text(p, *p.best(), s);
}

int plan(const PlanCommand& o) {
  if (o.constants) return say(Constants::built_in().to_text()), 0;
  if (o.collective.empty())
    fail(Result::invalid_argument, "muster plan: a collective is wanted, such as all_reduce");
  CallShape call{collective_named(o.collective), type_named(o.type), RedOp::sum, o.root, 1};
  if (!rooted(call.coll) && o.root != 0) fail(Result::invalid_argument, "{} has no root", name_of(call.coll));
  if (o.root < 0) fail(Result::invalid_argument, "--root {}: ranks are numbered from 0", o.root);
  if (o.host && (!o.file.empty() || o.rings))
    fail(Result::invalid_argument, "--host is about this machine's memory; {} is not",
         o.rings ? "--rings" : "--topo");
  const topology::Cluster cluster = o.host ? topology::Cluster{} : cluster_of(o);
  if (o.host || (o.file.empty() && !o.rings && all_gpus(cluster).empty())) return plan_on_host(o, call);
  const std::vector<RankPlace> places = places_of(cluster, o.ranks);
  if (o.rings) return say(rings_text(cluster, places)), 0;
  const Links links = links_of(cluster, places);
  PredictOptions options;
  options.per_thread = o.gpus_per_thread;
  options.algorithm = o.algorithm;
  options.protocol = o.protocol;
  if (o.root >= links.spread.ranks)
    fail(Result::invalid_argument, "--root {}: ranks are 0 to {}", o.root, links.spread.ranks - 1);
  const std::vector<uint64_t> sizes = sizes_of(o);
  const std::vector<SizeRow> rows =
      predict_sizes(call, sizes.front(), sizes.back(), links, Constants::built_in(), options);
  const Prediction& first = rows.front().prediction;
  if (o.program || o.dot || o.simulate || !o.trace.empty()) {
    if (!o.sizes.empty())
      fail(Result::invalid_argument, "--program, --dot, --simulate and --trace are for one --size");
    if (!first.best())
      fail(Result::invalid_argument, "no algorithm serves: {}",
           first.candidates.empty() ? "there is none" : first.candidates.front().obstacle);
    const PlanRun run(cluster, places, first, *first.best());
    if (o.program || o.dot) return show_programs(o, run, links.spread.ranks);
    say(text_of(first, rows.front().bytes));
    return say(simulated(o, run, first)), 0;
  }
  if (o.json)
    say(json_text(rows));
  else if (o.sizes.empty())
    say(text_of(rows[0].prediction, rows[0].bytes));
  else
    say(fmt::format("{}, {}: {}", name_of(call.coll), name_of(call.type), links_text(links)) +
        table_text(rows));
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "plan",
      "Show how a collective would run on the GPUs of this machine or of one that a file describes, "
      "or on this machine's memory, what it would take, and why");
  const auto o = std::make_shared<PlanCommand>();
  command->add_option(
      "collective", o->collective,
      "all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, gather or scatter");
  command
      ->add_option("--topo,--cluster", o->file,
                   "A topology or a cluster's description, as muster topo reads it; - is standard input. "
                   "Without it: this machine")
      ->type_name("FILE");
  command->add_option("--size", o->size, "Bytes, as nccl-tests counts them; K, M, G and T are powers of 1024")
      ->capture_default_str();
  command
      ->add_option("--sizes", o->sizes,
                   "Instead: a table of sizes FROM:TO, doubling, with the sizes where the choice switches")
      ->type_name("FROM:TO");
  command->add_option("--type", o->type, "Data type")->capture_default_str();
  command->add_option("--root", o->root, "Of a broadcast, reduce, gather or scatter")->capture_default_str();
  command
      ->add_option(
          "--ranks", o->ranks,
          "Only so many, in the order of hosts and GPUs. On host memory: so many; without it one per core")
      ->type_name("N");
  command->add_option("--algorithm", o->algorithm, "Only this one");
  command->add_option("--protocol", o->protocol, "Only this one: LL, LL128 or simple");
  command
      ->add_option("--gpus-per-thread", o->gpus_per_thread,
                   "GPUs that one thread of the program launches for (nccl-tests: -g)")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--host", o->host, "Ranks on this machine's memory, as without GPUs and --topo");
  command->add_flag("--rings", o->rings, "The rings found on the links, instead");
  command->add_flag("--program", o->program, "The chosen program of one rank, step by step, instead");
  command->add_option("--rank", o->rank, "Whose program: 0 if not given")->type_name("R");
  command->add_flag("--dot", o->dot, "The chosen programs of all ranks as a graph for Graphviz, instead");
  command->add_flag("--simulate", o->simulate,
                    "Run the chosen programs on the links, event by event: time, and what each link carries");
  command->add_flag("--all-tiles", o->all_tiles,
                    "Simulate every tile, not 16 of each loop; takes as long as there are bytes");
  command
      ->add_option("--trace", o->trace, "Simulate, and write a timeline: a Chrome trace, for ui.perfetto.dev")
      ->type_name("FILE");
  command->add_flag("--json", o->json, "For programs");
  command->add_flag("--constants", o->constants,
                    "The numbers that prices are made of, and where each is from");
  command->callback([o, &status] { status = plan(*o); });
}

}  // namespace muster::tool
