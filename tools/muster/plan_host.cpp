#include "plan_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "algorithms/algorithms.h"
#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "comm/nccl_algo.h"
#include "comm/plan_options.h"
#include "comm/tuning_profile.h"
#include "option_effects.h"
#include "plan/host_price.h"
#include "plan/hosts_price.h"
#include "plan/prediction.h"
#include "plan/selection.h"
#include "quantities.h"
#include "topology/allowed_cpus.h"

namespace muster::tool {
namespace {

struct MemoryOfHost {
  PlanInputs inputs;
  std::vector<OptionEffect> options;  // that are set
  TuningProfile profile;
  const Constants& constants() const {
    return profile.constants ? *profile.constants : Constants::built_in();
  }
};

// What an option that bears on plans does to this one.
std::string effect_of(const Option& option, const Options& options, const HostPlanRequest& request,
                      const PlanInputs& in) {
  const std::string_view name = option.name;
  if (option.no_effect) return fmt::format("{}{}", kNoEffect, option.no_effect);
  if (name == "NCCL_PROTO") return fmt::format("{}host memory has no protocols to choose from", kNoEffect);
  if (name == "MUSTER_PROGRAM")
    return fmt::format("{}plans are of what is built in; MUSTER_EXPLAIN=1 says what runs", kNoEffect);
  if (name.ends_with("_ALGO")) {
    if (!request.algorithm.empty()) return fmt::format("{}--algorithm goes before it", kNoEffect);
    if (in.forced_by != name) return fmt::format("{}{} goes before it", kNoEffect, in.forced_by);
    if (const std::string unmet = name == "NCCL_ALGO" ? read_nccl_algo(options.text(name)).unmet : "";
        !unmet.empty())
      return fmt::format("{}{}", kNoEffect, unmet);
    if (in.algorithm.empty())
      return in.trees ? fmt::format("{}Muster has nothing of what it excludes", kNoEffect) : "no tree";
    return find_algorithm(request.call.coll, in.algorithm)
               ? fmt::format("only {}", in.algorithm)
               : fmt::format("{}{} has no {}", kNoEffect, name_of(request.call.coll), in.algorithm);
  }
  if (name.ends_with("SLOT_BYTES") || name.ends_with("BUFFSIZE"))
    return fmt::format("messages of up to {}B", size_text(in.slot_bytes));
  if (name == "MUSTER_REPRODUCIBLE")
    return in.reproducible ? "only what combines in rank order" : "no effect: 0 is the default";
  if (name == "MUSTER_WINDOWS")
    return options.flag(name) ? "no effect: 1 is the default" : "peers' memory is never reached directly";
  // Those that bound channels.
  if (in.channels) return fmt::format("{} channel{}", in.channels, in.channels == 1 ? "" : "s");
  return in.most_channels
             ? fmt::format("at most {} channel{}", in.most_channels, in.most_channels == 1 ? "" : "s")
             : "as the planner chooses";
}

std::vector<OptionEffect> effects_of(const Options& options, const HostPlanRequest& request,
                                     const PlanInputs& in) {
  std::vector<OptionEffect> effects;
  for (const char* name :
       {"MUSTER_ALGO", "NCCL_ALGO", "NCCL_PROTO", "MUSTER_CHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS",
        "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS", "MUSTER_SLOT_BYTES",
        "NCCL_BUFFSIZE", "NCCL_CROSS_NIC", "MUSTER_REPRODUCIBLE", "MUSTER_WINDOWS", "MUSTER_PROGRAM"}) {
    if (!options.is_set(name)) continue;
    const auto table = option_table();
    const auto option = std::find_if(table.begin(), table.end(),
                                     [&](const Option& o) { return std::string_view(o.name) == name; });
    effects.push_back(
        {name, printable(as_written(options, name), 100), effect_of(*option, options, request, in)});
  }
  return effects;
}

// What options and the profile say.
MemoryOfHost with_options(const Options& options, const HostPlanRequest& request) {
  MemoryOfHost m;
  m.profile = load_tuning_profile(options);
  apply_plan_options(options, {}, m.inputs);
  m.options = effects_of(options, request, m.inputs);
  if (!request.algorithm.empty()) m.inputs.algorithm.clear();  // the command line goes before options
  m.inputs.tuned = m.profile.constants;
  return m;
}

MemoryOfHost this_machine(const HostPlanRequest& request) {
  constexpr int kMostRanks = 256;  // all ranks' programs are run on clocks
  const int ranks = request.ranks;
  const Options options = Options::from_environment();
  MemoryOfHost m = with_options(options, request);
  const auto allowed = static_cast<double>(allowed_cpus().size()), quota = cpu_quota();
  m.inputs.cores = std::max(1, static_cast<int>(quota > 0 ? std::min(allowed, quota) : allowed));
  if (ranks < 0 || ranks > kMostRanks)
    fail(Result::invalid_argument,
         "--ranks {}: ranks on host memory are planned for up to {}, as all their programs are run; --topo "
         "plans for more, on several hosts or on GPUs",
         ranks, kMostRanks);
  m.inputs.nranks = ranks > 0 ? ranks : m.inputs.cores;
  const size_t cache = last_level_cache();
  m.inputs.cache_bytes = cache ? cache : size_t{8} << 20;
  m.inputs.windows = options.flag("MUSTER_WINDOWS");
  return m;
}

// By rank.
std::vector<int> spread_over(int hosts, int ranks) {
  std::vector<int> host_of;
  for (int h = 0; h < hosts; ++h)
    host_of.insert(host_of.end(), static_cast<size_t>(ranks / hosts + (h < ranks % hosts ? 1 : 0)), h);
  return host_of;
}

// Of the host that has fewest; 0: the topology knows of none.
int cores_of(const topology::Cluster& c) {
  int least = 0;
  for (const auto& shape : c.shapes) {
    int cpus = 0;
    for (const int n : shape->all(topology::Kind::numa)) cpus += static_cast<int>(shape->numa(n).cpus.size());
    if (cpus > 0 && (least == 0 || cpus < least)) least = cpus;
  }
  return least;
}

MemoryOfHost machines_of(const topology::Cluster& c, const HostPlanRequest& request) {
  constexpr int kMostRanks = 1 << 20;
  // Of the machine whose constants are built in: topologies don't say what caches there are.
  constexpr size_t kCache = size_t{32} << 20;
  const int hosts = c.host_count(), ranks = request.ranks > 0 ? request.ranks : hosts;
  if (hosts < 2)
    fail(Result::invalid_argument,
         "ranks on the memory of one host are planned for on that host: run muster plan --host there, without "
         "--topo");
  if (ranks < 2 || ranks > kMostRanks)
    fail(Result::invalid_argument, "--ranks {}: on the memory of {} hosts 2 to {} are planned for", ranks,
         hosts, kMostRanks);
  MemoryOfHost m = with_options(Options::from_environment(), request);
  m.inputs.nranks = ranks;
  m.inputs.placement =
      std::make_shared<const Placement>(placement_of(spread_over(std::min(hosts, ranks), ranks)));
  m.inputs.network = network_between(c);
  const int cores = cores_of(c);
  m.inputs.cores = cores > 0 ? cores : ranks;
  m.inputs.cache_bytes = kCache;
  return m;
}

// Nothing for what isn't priced there.
std::optional<HostPrice> price_of(const Algorithm& a, const CallShape& call, const MemoryOfHost& m) {
  if (!m.inputs.placement) return host_price(a, call, m.inputs, m.constants());
  const auto p = hosts_price(a, call, m.inputs, m.constants());
  if (!p) return std::nullopt;
  return HostPrice{p->us, p->rounds_us, p->us - p->rounds_us, 0};
}

struct HostCandidate {
  const Algorithm* algorithm;
  HostPrice price;
  std::string obstacle;
};

struct Row {
  CallShape call;
  uint64_t bytes = 0;
  Choice slots, windows;
  std::vector<HostCandidate> candidates;  // by price; those with an obstacle last

  const HostCandidate& of(const Algorithm* a) const {
    return *std::find_if(candidates.begin(), candidates.end(),
                         [a](const HostCandidate& c) { return c.algorithm == a; });
  }
  double algbw(double us) const { return static_cast<double>(bytes) / us / 1e3; }
};

// Why the algorithm can't do the call; empty: it can.
std::string obstacle_of(const Algorithm& a, CallShape call, const PlanInputs& in) {
  if (a.windows && a.by_host) return obstacle(1, in.nranks);
  if (a.windows)
    return in.windows && in.nranks > 1 ? "" : "needs memory that ranks can reach at each other's";
  call.allowed = parse_selection(call.coll, a.name);
  PlanInputs free = in;
  free.algorithm.clear();
  try {
    choose(call, free);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

Row row_of(CallShape call, uint64_t bytes, const MemoryOfHost& m, const std::string& only) {
  Row r;
  call.count = count_of(call, bytes, m.inputs.nranks);
  r.call = call;
  r.bytes = bytes;
  if (!only.empty()) r.call.allowed = call.allowed = parse_selection(call.coll, only);
  r.slots = choose(call, m.inputs);
  r.windows = choose_windows(call, m.inputs);
  for (const Algorithm& a : algorithms())
    if (a.coll == call.coll)
      if (const auto price = price_of(a, call, m))
        r.candidates.push_back({&a, *price, obstacle_of(a, call, m.inputs)});
  std::stable_sort(r.candidates.begin(), r.candidates.end(), [](const HostCandidate& a, const HostCandidate& b) {
    return std::pair(!a.obstacle.empty(), a.price.us) < std::pair(!b.obstacle.empty(), b.price.us);
  });
  return r;
}

std::string ranks_text(const PlanInputs& in) {
  if (in.placement) {
    const Spread s = spread_of(in);
    return fmt::format("{} ranks on the memory of {} hosts, {}{} each, {}{}", s.ranks, s.hosts,
                       s.ranks == s.hosts * s.per_host ? "" : "up to ", s.per_host, name_of(in.network.kind),
                       in.network.gbytes_per_s > 0
                           ? fmt::format(" over ports of {:.4g} GB/s per host", in.network.gbytes_per_s)
                           : "");
  }
  return fmt::format("{} rank{} on host memory, {} core{}", in.nranks, in.nranks == 1 ? "" : "s", in.cores,
                     in.cores == 1 ? "" : "s");
}

std::string constants_text(const MemoryOfHost& m) {
  return m.profile.file.empty() ? "built in, of another machine: muster tune measures this one"
                                : printable(m.profile.file, 200);
}

std::string choice_text(const char* title, const Choice& choice, const Row& r, int nranks) {
  const HostPrice& p = r.of(choice.algorithm).price;
  return fmt::format(
      "{:<10} {} ({}): {}\n"
      "takes      {}: calls and messages {} + bytes {} + turns {} + waiting {}\n"
      "bandwidth  {:.2f} GB/s algbw, {:.2f} GB/s busbw\n",
      title, choice.algorithm->name, choice.algorithm->idea, choice.reason, time_text(p.us),
      time_text(p.messages_us), time_text(p.bytes_us), time_text(p.turns_us),
      time_text(std::max(0.0, p.waits_us())), r.algbw(p.us), r.algbw(p.us) * bus_factor(r.call.coll, nranks));
}

std::string text_of(const Row& r, const MemoryOfHost& m) {
  std::string text =
      fmt::format("{} of {}B, {}: {}\nconstants  {}\n{}\n", name_of(r.call.coll), size_text(r.bytes),
                  name_of(r.call.type), ranks_text(m.inputs), constants_text(m), effects_text(m.options));
  text += choice_text("chosen", r.slots, r, m.inputs.nranks);
  if (r.windows.algorithm)
    text += "\nwhere all buffers are of mem_alloc, or ranks are threads of one process:\n" +
            choice_text("chosen", r.windows, r, m.inputs.nranks);
  text += fmt::format("\n{:<18} {:>12} {:>10} {:>10}   why not\n", "others", "time", "algbw", "busbw");
  const double us = r.of(r.slots.algorithm).price.us;
  for (const HostCandidate& c : r.candidates) {
    if (c.algorithm == r.slots.algorithm || c.algorithm == r.windows.algorithm) continue;
    const double t = c.price.us;
    text += fmt::format("{:<18} {:>12} {:>10.2f} {:>10.2f}   {}\n", c.algorithm->name, time_text(t),
                        r.algbw(t), r.algbw(t) * bus_factor(r.call.coll, m.inputs.nranks),
                        c.obstacle.empty() ? fmt::format("{:.3g} times as long", t / us) : c.obstacle);
  }
  return text;
}

std::string table_of(const std::vector<Row>& rows, const MemoryOfHost& m) {
  std::string text = fmt::format(
      "{}, {}: {}\nconstants  {}\n{}\n{:>8}  {:<18} {:>12} {:>10} {:>10}  {:>20}\n",
      name_of(rows[0].call.coll), name_of(rows[0].call.type), ranks_text(m.inputs), constants_text(m),
      effects_text(m.options), "size", "algorithm", "time", "algbw", "busbw", "with mem_alloc");
  const Algorithm *before = nullptr, *before_windows = nullptr;
  for (const Row& r : rows) {
    const double us = r.of(r.slots.algorithm).price.us;
    const bool switches = before && (before != r.slots.algorithm || before_windows != r.windows.algorithm);
    text += fmt::format(
        "{:>8}  {:<18} {:>12} {:>10.2f} {:>10.2f}  {:>20}  {}\n", size_text(r.bytes), r.slots.algorithm->name,
        time_text(us), r.algbw(us), r.algbw(us) * bus_factor(r.call.coll, m.inputs.nranks),
        r.windows.algorithm
            ? fmt::format("{} {}", r.windows.algorithm->name, time_text(r.of(r.windows.algorithm).price.us))
            : "the same",
        switches ? "<- switches" : "");
    before = r.slots.algorithm;
    before_windows = r.windows.algorithm;
  }
  return text;
}

std::string json_of(const std::vector<Row>& rows, const MemoryOfHost& m) {
  nlohmann::ordered_json j;
  j["muster_plan_host"] = 1;  // of this layout
  j["collective"] = name_of(rows[0].call.coll);
  j["type"] = name_of(rows[0].call.type);
  j["ranks"] = m.inputs.nranks;
  j["hosts"] = spread_of(m.inputs).hosts;
  j["cores"] = m.inputs.cores;
  j["tuning_profile"] = m.profile.file;
  j["options"] = json_of(m.options);
  for (const Row& r : rows) {
    nlohmann::ordered_json size;
    size["bytes"] = r.bytes;
    size["chosen"] = r.slots.algorithm->name;
    size["chosen_with_mem_alloc"] = (r.windows.algorithm ? r.windows : r.slots).algorithm->name;
    size["candidates"] = nlohmann::ordered_json::array();
    for (const HostCandidate& c : r.candidates) {
      nlohmann::ordered_json one;
      one["algorithm"] = c.algorithm->name;
      one["microseconds"] = c.price.us;
      one["parts"] = {{"messages", c.price.messages_us},
                      {"bytes", c.price.bytes_us},
                      {"turns", c.price.turns_us},
                      {"waits", c.price.waits_us()}};
      one["algbw"] = r.algbw(c.price.us);
      one["busbw"] = r.algbw(c.price.us) * bus_factor(r.call.coll, m.inputs.nranks);
      if (!c.obstacle.empty()) one["obstacle"] = c.obstacle;
      size["candidates"].push_back(std::move(one));
    }
    j["sizes"].push_back(std::move(size));
  }
  return j.dump(2) + "\n";
}

}  // namespace

std::string host_plan(const HostPlanRequest& request) {
  const MemoryOfHost m = request.cluster ? machines_of(*request.cluster, request) : this_machine(request);
  if (request.call.root >= m.inputs.nranks)
    fail(Result::invalid_argument, "--root {}: ranks are 0 to {}", request.call.root, m.inputs.nranks - 1);
  std::vector<Row> rows;
  for (const uint64_t bytes : request.sizes)
    rows.push_back(row_of(request.call, bytes, m, request.algorithm));
  if (request.json) return json_of(rows, m);
  return rows.size() == 1 ? text_of(rows[0], m) : table_of(rows, m);
}

}  // namespace muster::tool
