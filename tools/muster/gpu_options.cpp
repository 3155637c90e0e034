#include "gpu_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "base/error.h"
#include "base/text.h"
#include "comm/nccl_algo.h"
#include "plan/selection.h"
#include "quantities.h"

namespace muster::tool {
namespace {

// With an effect in a run, but none on what is planned for GPUs: of host memory, and who reaches whose
// memory.
constexpr std::array<std::string_view, 8> kNotInPlans = {
    "MUSTER_PROGRAM", "MUSTER_REPRODUCIBLE", "MUSTER_SLOT_BYTES", "MUSTER_WAIT",
    "MUSTER_WINDOWS", "NCCL_P2P_DISABLE",    "NCCL_P2P_LEVEL",    "NCCL_SHM_DISABLE"};

class Reader {
 public:
  Reader(const Options& options, const PredictOptions& given, int hosts, CallShape& call)
      : options_(options), given_(given), hosts_(hosts), call_(call) {
    out_.predict = given;
  }

  GpuOptions read() {
    algorithms_asked_for();
    protocols();
    channels();
    messages();
    cross_nic();
    unreadable();
    the_rest();
    return std::move(out_);
  }

 private:
  bool is_set(std::string_view name) const { return options_.is_set(name); }
  void say(std::string_view name, std::string effect) {
    told_.emplace_back(name);
    out_.effects.push_back(
        {std::string(name), printable(as_written(options_, name), 100), std::move(effect)});
  }
  void say_beaten(std::string_view name, std::string_view by) {
    if (is_set(name)) say(name, fmt::format("{}{} goes before it", kNoEffect, by));
  }

  void algorithms_asked_for() {
    constexpr const char *kOurs = "MUSTER_ALGO", *kNccl = "NCCL_ALGO";
    if (!given_.algorithm.empty()) {
      say_beaten(kOurs, "--algorithm");
      return say_beaten(kNccl, "--algorithm");
    }
    if (is_set(kOurs)) {
      force(kOurs, options_.text(kOurs));
      return say_beaten(kNccl, kOurs);
    }
    if (is_set(kNccl)) select(kNccl, nccl_algorithms_for(call_.coll, options_.text(kNccl)));
  }

  void force(const char* option, const std::string& name) {
    if (find_algorithm(call_.coll, name)) {
      out_.predict.algorithm = name;
      return say(option, fmt::format("only {}", name));
    }
    const auto all = algorithms();
    if (!is_set("MUSTER_PROGRAM") &&
        std::none_of(all.begin(), all.end(), [&](const Algorithm& a) { return name == a.name; })) {
      std::vector<std::string_view> names;
      for (const Algorithm& a : all)
        if (std::find(names.begin(), names.end(), a.name) == names.end()) names.push_back(a.name);
      fail(Result::invalid_usage, "{}='{}' names no algorithm. There are: {}", option, printable(name, 60),
           fmt::join(names, ", "));
    }
    say(option, fmt::format("{}{} has no {}", kNoEffect, name_of(call_.coll), printable(name, 60)));
  }

  void select(const char* option, const std::string& list) {
    if (list.empty())
      return say(option, fmt::format("{}it has no list for {}", kNoEffect, name_of(call_.coll)));
    try {
      call_.allowed = parse_selection(call_.coll, list);
    } catch (const Error&) {
      return say(option, fmt::format("{}Muster has none of '{}' for {}", kNoEffect, printable(list, 60),
                                     name_of(call_.coll)));
    }
    say(option, call_.allowed ? fmt::format("only {}", names_of_allowed(call_))
                              : fmt::format("{}Muster has nothing of what it excludes", kNoEffect));
  }

  void protocols() {
    constexpr const char* kOption = "NCCL_PROTO";
    if (!is_set(kOption)) return;
    if (!given_.protocol.empty()) return say_beaten(kOption, "--protocol");
    const std::string list = nccl_protocols_for(call_.coll, options_.text(kOption));
    if (list.empty())
      return say(kOption, fmt::format("{}it has no list for {}", kNoEffect, name_of(call_.coll)));
    out_.predict.protocol = list;
    say(kOption, list.starts_with('^') ? fmt::format("all protocols but {}", list.substr(1))
                                       : fmt::format("only {}", list));
  }

  // The first of these names that is set, and not to 0.
  int bound(std::initializer_list<const char*> names, const char* what) {
    const char* first = nullptr;
    for (const char* name : names) {
      if (!is_set(name)) continue;
      const int64_t n = options_.integer(name);
      if (n == 0) {
        say(name, fmt::format("{}0 is no bound", kNoEffect));
      } else if (first) {
        say_beaten(name, first);
      } else {
        first = name;
        say(name, n > kMostGpuChannels
                      ? fmt::format("{} {} channels, which are the most there can be", what, kMostGpuChannels)
                      : fmt::format("{} {} channel{}", what, n, n == 1 ? "" : "s"));
      }
    }
    return first ? static_cast<int>(std::min<int64_t>(options_.integer(first), kMostGpuChannels)) : 0;
  }

  void channels() {
    PredictOptions& p = out_.predict;
    const std::initializer_list<const char*> least = {"NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS",
                                                      "NCCL_MIN_NRINGS"},
                                             most = {"NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS",
                                                     "NCCL_MAX_NRINGS"};
    constexpr const char* kForced = "MUSTER_CHANNELS";
    if (const int64_t n = options_.integer(kForced); n > 0) {
      if (n > kMostGpuChannels)
        fail(Result::invalid_usage, "{}={}: {} are the most", kForced, n, kMostGpuChannels);
      p.least_channels = p.most_channels = static_cast<int>(n);
      say(kForced, fmt::format("{} channel{}", n, n == 1 ? "" : "s"));
      for (const auto& names : {least, most})
        for (const char* name : names) say_beaten(name, kForced);
      return;
    }
    const int low = bound(least, "at least"), high = bound(most, "at most");
    if (high) p.most_channels = high;
    if (low) p.least_channels = low;
    if (high && low > high) {
      p.least_channels = high;
      out_.effects.push_back({"", "",
                              fmt::format("at least {} channels and at most {} can't be: {} used", low, high,
                                          high == 1 ? "1 is" : fmt::format("{} are", high))});
    }
  }

  void messages() {
    constexpr const char* kOption = "NCCL_BUFFSIZE";
    const int64_t bytes = options_.integer(kOption);
    if (!is_set(kOption)) return;
    if (bytes == 0) return say(kOption, fmt::format("{}0 is the default", kNoEffect));
    constexpr int64_t kSteps = 8;  // messages that a connection's buffer holds (NCCL_STEPS)
    out_.predict.simple_message_bytes = static_cast<uint64_t>(std::max<int64_t>(1, bytes / kSteps));
    say(kOption, fmt::format("messages of protocol simple have up to {}B; simulations show what that "
                             "changes, prices don't depend on it",
                             size_text(out_.predict.simple_message_bytes)));
  }

  void cross_nic() {
    constexpr const char* kOption = "NCCL_CROSS_NIC";
    if (!is_set(kOption)) return;
    const int64_t value = options_.integer(kOption);
    if (value < 0 || value > 2)
      fail(Result::invalid_usage,
           "{}='{}': 0 (a ring leaves a host by the port it came in by), 1 (by any) or 2 (by another where "
           "that moves more) is wanted",
           kOption, printable(as_written(options_, kOption), 60));
    out_.cross_nic = static_cast<int>(value);
    constexpr const char* kWhat[] = {"rings leave a host by the port they came in by",
                                     "rings may leave a host by another port than they came in by",
                                     "rings leave a host by another port where that moves more"};
    say(kOption,
        hosts_ == 1
            ? fmt::format("{}one host", kNoEffect)
            : fmt::format("{}; --rings, --program and --simulate show them, prices don't depend on it",
                          kWhat[value]));
  }

  void unreadable() {
    for (const OptionNote& note : options_.notes())
      if (note.warning) out_.effects.push_back({"", "", note.text});
  }

  void the_rest() {
    std::vector<std::string_view> without;
    for (const Option& o : option_table()) {
      const std::string_view name = o.name;
      if (name.ends_with('*') || !is_set(name) || std::find(told_.begin(), told_.end(), name) != told_.end())
        continue;
      if ((o.no_effect && name.starts_with("NCCL_")) ||
          std::find(kNotInPlans.begin(), kNotInPlans.end(), name) != kNotInPlans.end())
        without.push_back(name);
    }
    if (!without.empty())
      out_.effects.push_back(
          {"", "", fmt::format("{}: no effect on plans for GPUs", fmt::join(without, ", "))});
  }

  const Options& options_;
  const PredictOptions& given_;
  const int hosts_;
  CallShape& call_;
  std::vector<std::string> told_;
  GpuOptions out_;
};

}  // namespace

GpuOptions gpu_options(const Options& options, const PredictOptions& given, int hosts, CallShape& call) {
  return Reader(options, given, hosts, call).read();
}

}  // namespace muster::tool
