#include "comm/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "comm/state.h"
#include "comm/time_call.h"
#include "plan/bandwidth.h"
#include "plan/host_price.h"
#include "plan/prediction.h"
#include "plan/selection.h"

namespace muster {
namespace {

// Who makes an experiment's calls: each rank alone, all at once; the first two ranks; all ranks.
enum class Involved : uint8_t { alone, pair, all };

// How large a call is: a number of bytes, or so large that the model has nothing left in caches.
constexpr uint64_t kOutside = 0;

struct Experiment {
  const char* constant;
  Involved group;
  Coll coll;
  const char* algorithm;
  uint64_t bytes;  // count * size
  DataType type = DataType::float32;
};

constexpr uint64_t kShort = 8, kLine = 512, kLong = 64 << 10;

// In the order in which they build on each other.
constexpr Experiment kCoreEach[] = {
    {"host.call", Involved::alone, Coll::all_reduce, "direct", kShort},
    {"host.local", Involved::alone, Coll::all_reduce, "direct", 4 * kLong},
    {"host.message", Involved::pair, Coll::broadcast, "direct", kShort},
    {"host.hand_over", Involved::pair, Coll::all_reduce, "one_shot", kShort},
    {"host.slot", Involved::all, Coll::all_gather, "direct", kLong},
    {"host.ring", Involved::pair, Coll::all_gather, "direct", kLine},
    {"host.window", Involved::all, Coll::all_gather, "window", kLong},
    {"host.combine", Involved::all, Coll::reduce_scatter, "direct", kLong},
    {"host.combine.half", Involved::all, Coll::reduce_scatter, "direct", kLong, DataType::float16},
    {"host.combine.float8", Involved::all, Coll::reduce_scatter, "direct", kLong, DataType::float8_e4m3},
    {"host.window.store", Involved::all, Coll::all_reduce, "window", 4 * kLong},
    {"host.local.memory", Involved::alone, Coll::all_reduce, "direct", kOutside},
    {"host.window.memory", Involved::all, Coll::all_gather, "window", kOutside},
    {"host.window.store.memory", Involved::all, Coll::all_reduce, "window", kOutside},
};
constexpr Experiment kSharedCores[] = {
    {"host.turn", Involved::all, Coll::all_gather, "direct", kShort},
    {"host.slot.memory", Involved::all, Coll::all_gather, "direct", kLong},  // the connections alone fill caches
};

constexpr int kRounds = 2;
constexpr double kNotMade = std::numeric_limits<double>::infinity();

void require_free_choice(Communicator& comm) {
  const PlanInputs& in = comm.impl()->inputs;
  if (!in.algorithm.empty() || in.channels > 1)
    fail(Result::invalid_usage, "tuning measures all ways to move data, and {} forces one. Unset it",
         in.algorithm.empty() ? "a number of channels" : in.forced_by + "=" + in.algorithm);
}

class Tuning {
 public:
  Tuning(Communicator& all, Constants known, const TuneOptions& options)
      : all_(all), constants_(std::move(known)), options_(options) {
    require_free_choice(all);
    alone_ = all.split(all.rank(), 0);
    pair_ = all.split(all.rank() < 2 ? 0 : Communicator::kNoColor, 0);
  }

  Constants run() {
    const bool crowded = all_.size() > all_.impl()->inputs.cores;
    const std::span<const Experiment> experiments =
        crowded ? std::span<const Experiment>(kSharedCores) : std::span<const Experiment>(kCoreEach);
    // Twice, some time apart, and the shorter counts: who disturbs one may leave the other alone.
    std::vector<double> us(experiments.size(), kNotMade);
    for (int round = 0; round < kRounds; ++round)
      for (size_t i = 0; i < us.size(); ++i) us[i] = std::min(us[i], time(experiments[i]));
    for (size_t i = 0; i < us.size(); ++i)
      if (us[i] != kNotMade) conclude(experiments[i], us[i]);
    return std::move(constants_);
  }

 private:
  Communicator& group_of(const Experiment& e) {
    return e.group == Involved::alone ? alone_ : e.group == Involved::pair ? pair_ : all_;
  }

  PlanInputs inputs_of(const Experiment& e) const {
    PlanInputs in = all_.impl()->inputs;
    in.nranks = e.group == Involved::alone ? 1 : e.group == Involved::pair ? 2 : all_.size();
    if (e.group == Involved::alone)
      in.cache_bytes /= static_cast<size_t>(all_.size());  // all ranks do it at once
    return in;
  }

  static uint64_t count_of(const Experiment& e, const PlanInputs& in) {
    if (e.bytes != kOutside) return e.bytes / size_of(e.type);
    const CallShape one{e.coll, e.type, RedOp::sum, 0, 1};
    return static_cast<uint64_t>(kLeavesCache * static_cast<double>(in.cache_bytes) /
                                 host_footprint(one, in.nranks));
  }

  static CallShape shape_of(const Experiment& e, const PlanInputs& in) {
    return {e.coll, e.type, RedOp::sum, 0, count_of(e, in)};
  }

  // Microseconds; kNotMade for what these ranks can't do.
  double time(const Experiment& e) {
    const PlanInputs in = inputs_of(e);
    const bool window = std::string_view(e.algorithm) == "window";
    if ((window && !in.windows && !in.same_process) || (all_.size() == 1 && e.group != Involved::alone))
      return kNotMade;
    CallShape shape = shape_of(e, in);
    if (in.nranks > 1)
      shape.allowed = parse_selection(e.coll, window ? "window,direct" : e.algorithm);  // windows, else slots
    return time_call(all_, group_of(e), shape, window, options_.per_experiment / kRounds);
  }

  void conclude(const Experiment& e, double us) {
    const PlanInputs in = inputs_of(e);
    const CallShape shape = shape_of(e, in);
    const std::string source = fmt::format(
        "{} {} of {} B {}, {} rank{}{}: {:.4g} us", name_of(e.coll), e.algorithm,
        shape.count * size_of(shape.type), name_of(e.type), in.nranks, in.nranks == 1 ? "" : "s",
        in.nranks > in.cores ? fmt::format(" on {} core{}", in.cores, in.cores == 1 ? "" : "s") : "", us);
    set(e.constant, solve(e, shape, in, us), source);
  }

  void set(const char* name, double value, const std::string& source) {
    const std::string line =
        fmt::format("{} {:.6g} {} measured {}", name, value, constants_.get(name).unit, source);
    constants_.override_with(Constants::read(line, "tuning"), "tuning");
  }

  // Prices rise with times and fall with rates, so the value is found by halving the (logarithmic) range.
  // Bytes outside caches are never cheaper than inside.
  double solve(const Experiment& e, const CallShape& call, const PlanInputs& in, double us) const {
    constexpr double kLeast = 1e-4, kMost = 1e4;
    const std::string_view name = e.constant;
    constexpr std::string_view kMemory = ".memory";
    const double most =
        name.ends_with(kMemory) ? constants_(name.substr(0, name.size() - kMemory.size())) : kMost;
    constexpr int kHalvings = 40;
    const bool is_rate = constants_.get(e.constant).unit == "GB/s";
    const Algorithm& algorithm = *find_algorithm(e.coll, e.algorithm);
    double low = std::log(kLeast), high = std::log(most);
    Constants trial = constants_;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      trial.override_with(Constants::read(fmt::format("{} {} {} measured trial", e.constant, std::exp(middle),
                                                      is_rate ? "GB/s" : "us"),
                                          "tuning"),
                          "tuning");
      const bool too_dear = host_model_price(algorithm, call, in, trial).us > us;
      (too_dear == is_rate ? low : high) = middle;
    }
    return std::exp((low + high) / 2);
  }

  Communicator& all_;
  Communicator alone_, pair_;
  Constants constants_;
  const TuneOptions options_;
};

// All ways to make one call.
struct Race {
  uint64_t bytes = 0;
  std::vector<const Algorithm*> algorithms;
  std::vector<TimedCall> calls;  // one by each
  double us = 0;                 // about, of the longest
};

constexpr int kRaceRounds = 5;

// How long it takes with batches of so long; one call more where they are few.
double seconds_of(const Race& race, double batch) {
  return static_cast<double>(race.calls.size()) * (kRaceRounds + 1) * std::max(batch, 2e-6 * race.us);
}

Race race_of(const CallShape& shape, const PlanInputs& in, const Constants& known) {
  Race race;
  race.bytes = static_cast<uint64_t>(data_bytes(shape.coll, in.nranks, shape.count, size_of(shape.type)));
  for (const Algorithm& a : algorithms()) {
    if (a.coll != shape.coll) continue;
    TimedCall c{shape, a.windows};
    c.shape.allowed = only(a);
    if (a.windows) {  // else slots
      c.shape.allowed |= only(*choose(shape, in).algorithm);
      if (!choose_windows(c.shape, in).algorithm) continue;
    } else if (!can_run(a, shape, in)) {
      continue;
    }
    race.algorithms.push_back(&a);
    race.calls.push_back(c);
    race.us = std::max(race.us, host_model_price(a, shape, in, known).us);
  }
  return race;
}

std::vector<Race> races_of(const PlanInputs& in, const Constants& known) {
  constexpr double kMostBufferBytes = 1 << 30;  // of all ranks' buffers
  const double all = std::min(kLeavesCache * static_cast<double>(in.cache_bytes), kMostBufferBytes);
  std::vector<Race> races;
  for (int c = 0; c < kColls; ++c) {
    CallShape shape{static_cast<Coll>(c), DataType::float32, RedOp::sum, 0, 1};
    if (is_uneven(shape.coll) || shape.coll == Coll::send_recv) continue;
    const auto largest = std::max<uint64_t>(1, static_cast<uint64_t>(all / host_footprint(shape, in.nranks)));
    shape.count = 0;
    for (uint64_t bytes = 8; shape.count < largest; bytes *= 4) {
      uint64_t count = count_of(shape, bytes, in.nranks);
      if (count > largest / 2) count = largest;  // one near it would say the same
      if (count == shape.count) continue;
      shape.count = count;
      races.push_back(race_of(shape, in, known));
    }
  }
  return races;
}

// The differences of a call's times from its middle one, relative, by halves: what lies in the middle half.
void add_spread(const std::vector<double>& us, std::vector<double>& spreads) {
  std::vector<double> off;
  for (const double t : us) off.push_back(std::abs(t / median(us) - 1));
  spreads.push_back(median(std::move(off)));
}

}  // namespace

Constants tune_calls(Communicator& comm, Constants known, std::chrono::duration<double> budget) {
  require_free_choice(comm);
  const PlanInputs& in = comm.impl()->inputs;
  if (in.nranks < 2 || in.nranks > kMostDirect || in.placement) return known;
  std::vector<Race> races = races_of(in, known);

  // Long batches first, then short ones, then fewer sizes.
  constexpr double kLongest = 5e-3, kShortest = 2e-4;
  double batch = kLongest;
  const auto all_seconds = [&] {
    double sum = 0;
    for (const Race& r : races) sum += seconds_of(r, batch);
    return sum;
  };
  while (batch > kShortest && all_seconds() > budget.count()) batch = std::max(kShortest, batch * 0.8);
  while (races.size() > 1 && all_seconds() > budget.count())
    races.erase(std::ranges::max_element(races, {}, [&](const Race& r) { return seconds_of(r, batch); }));

  std::vector<double> spreads;
  std::map<const Algorithm*, MeasuredRow> rows;
  for (const Race& race : races) {
    const auto times = time_calls(comm, race.calls, std::chrono::duration<double>(batch), kRaceRounds);
    for (size_t i = 0; i < times.size(); ++i) {
      MeasuredRow& row = rows[race.algorithms[i]];
      row.points.push_back({race.bytes, median(times[i])});
      add_spread(times[i], spreads);
    }
  }
  for (const Algorithm& a : algorithms())
    if (const auto row = rows.find(&a); row != rows.end()) {
      row->second.algorithm = &a;
      row->second.ranks = in.nranks;
      row->second.cores = in.cores;
      known.calls().add(std::move(row->second));
    }
  const Constant& before = known.get("host.spread");
  double spread = median(std::move(spreads));
  if (before.kind == "measured") spread = std::max(spread, before.value);  // of other ranks
  known.override_with(
      Constants::read(
          fmt::format("host.spread {:.3g} - measured {} batches of each call, {:.2g} ms or more each: median "
                      "distance from their median, the largest of all numbers of ranks",
                      spread, kRaceRounds, batch * 1e3),
          "tuning"),
      "tuning");
  return known;
}

Constants tune_host(Communicator& comm, Constants known, const TuneOptions& options) {
  return Tuning(comm, std::move(known), options).run();
}

std::string profile_text(const Constants& tuned, const std::string& where) {
  std::string text = fmt::format(
      "# Muster {}: constants of the host cost model, measured by muster tune.\n# {}\n# name, value, unit, "
      "where from, how\n",
      MUSTER_VERSION, where);
  const Constants& built_in = Constants::built_in();
  for (const auto& [name, c] : tuned.all())
    if (!built_in.has(name) || c.source != built_in.get(name).source)
      text += fmt::format("{:<24} {:<12.6g} {:<8} {:<9} {}\n", name, c.value, c.unit, c.kind, c.source);
  if (tuned.calls().rows().empty()) return text;
  text +=
      "\n# What calls of float32 took, in us, medians: calls, collective, algorithm, ranks, cores, then "
      "bytes:us.\n"
      "# Bytes are counted as nccl-tests does. By window: buffers of mem_alloc; else of malloc.\n";
  for (const MeasuredRow& row : tuned.calls().rows()) text += fmt::format("calls {}\n", row.to_text());
  return text;
}

}  // namespace muster
