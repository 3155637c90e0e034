#include "comm/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "comm/state.h"
#include "comm/time_call.h"
#include "plan/host_price.h"
#include "plan/selection.h"
#include "plan/solve_constant.h"

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
    {"host.slot.memory", Involved::all, Coll::all_gather, "direct", kOutside},
    {"host.window.memory", Involved::all, Coll::all_gather, "window", kOutside},
    {"host.window.store.memory", Involved::all, Coll::all_reduce, "window", kOutside},
};
constexpr Experiment kSharedCores[] = {
    {"host.turn", Involved::all, Coll::all_gather, "direct", kShort},
    {"host.slot.memory", Involved::all, Coll::all_gather, "direct",
     kOutside},  // of one core; of more it is known
};

constexpr int kRounds = 2;
constexpr double kNotMade = std::numeric_limits<double>::infinity();

class Tuning {
 public:
  Tuning(Communicator& all, Constants known, const TuneOptions& options)
      : all_(all), constants_(std::move(known)), options_(options) {
    require_nothing_forced(all);
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
      for (size_t i = 0; i < us.size(); ++i)
        if (!is_known(experiments[i])) us[i] = std::min(us[i], time(experiments[i]));
    for (size_t i = 0; i < us.size(); ++i)
      if (us[i] != kNotMade) conclude(experiments[i], us[i]);
    return std::move(constants_);
  }

 private:
  Communicator& group_of(const Experiment& e) {
    return e.group == Involved::alone ? alone_ : e.group == Involved::pair ? pair_ : all_;
  }

  // Ranks with a core each tell better what memory costs: on shared cores other things make up most of a
  // time.
  bool is_known(const Experiment& e) const {
    return all_.size() > all_.impl()->inputs.cores && std::string_view(e.constant) == "host.slot.memory" &&
           constants_.get(e.constant).source != Constants::built_in().get(e.constant).source;
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
    // Bytes outside caches are never cheaper than inside.
    constexpr std::string_view kMemory = ".memory";
    const std::string_view name = e.constant;
    const double most =
        name.ends_with(kMemory) ? constants_(name.substr(0, name.size() - kMemory.size())) : kMostConstant;
    const Algorithm& algorithm = *find_algorithm(e.coll, e.algorithm);
    const double value = solve_constant(constants_, name, us, most, [&](const Constants& trial) {
      return host_model_price(algorithm, shape, in, trial).us;
    });
    set_measured(constants_, name, value, source);
  }

  Communicator& all_;
  Communicator alone_, pair_;
  Constants constants_;
  const TuneOptions options_;
};

}  // namespace

void require_nothing_forced(const Communicator& comm) {
  const PlanInputs& in = comm.impl()->inputs;
  if (!in.algorithm.empty() || in.channels > 1)
    fail(Result::invalid_usage, "tuning measures all ways to move data, and {} forces one. Unset it",
         in.algorithm.empty() ? "a number of channels" : in.forced_by + "=" + in.algorithm);
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
