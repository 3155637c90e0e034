#include "comm/plan_options.h"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "base/error.h"
#include "base/log_options.h"
#include "base/math.h"
#include "base/text.h"
#include "comm/call_report.h"
#include "comm/cta_policy.h"
#include "comm/nccl_algo.h"
#include "exec/host/waiter.h"
#include "transports/connection.h"

namespace muster {
namespace {

// Lanes that a collective's channels may use without being asked to; one more serves point-to-point messages.
constexpr int kCollectiveLanes = 2;
// The ring of a connection holds kSlots of the largest messages: 1 MiB, about a core's second-level cache, from where on
// the time per message no longer falls (bench/loop --ring).
constexpr size_t kSlotBytes = 32 << 10, kLeastSlotBytes = 1 << 10, kMostSlotBytes = 1 << 20;

// The name must be an algorithm's, of whatever collective, or that of a program of MUSTER_PROGRAM.
void check_forced_algorithm(const PlanInputs& inputs) {
  const std::string& forced = inputs.algorithm;
  if (forced.empty()) return;
  std::set<std::string> names;
  for (const auto& custom : inputs.custom) names.insert(custom->algorithm.name);
  for (const Algorithm& a : algorithms()) names.insert(a.name);
  if (!names.count(forced))
    fail(Result::invalid_usage, "MUSTER_ALGO='{}' names no algorithm. There are: {}", forced, fmt::join(names, ", "));
}

void choose_algorithm(const Options& o, PlanInputs& inputs) {
  inputs.forced_by = "MUSTER_ALGO";
  inputs.algorithm = o.text("MUSTER_ALGO");
  if (o.is_set("MUSTER_ALGO") || !o.is_set("NCCL_ALGO")) return;
  const std::string& text = o.text("NCCL_ALGO");
  const NcclAlgo read = read_nccl_algo(text);
  if (!read.unmet.empty())
    log_once({true, "NCCL_ALGO", fmt::format("NCCL_ALGO='{}' has no effect: {}. The planner chooses; MUSTER_ALGO forces an algorithm", printable(text, 200), read.unmet)});
  else if (!read.algorithm.empty())
    log_once({false, "NCCL_ALGO", fmt::format("NCCL_ALGO='{}' is read as MUSTER_ALGO={}", printable(text, 200), read.algorithm)});
  inputs.forced_by = "NCCL_ALGO";
  inputs.algorithm = read.algorithm;
  inputs.trees = read.trees;
}

// A bound on channels: the first name that is set, else what the program asks for.
struct ChannelBound {
  std::string name;
  int64_t channels = 0;  // 0: none
};
ChannelBound read_bound(const Options& o, std::initializer_list<const char*> names, const char* field, int asked) {
  if (asked < 0 || asked > kMostChannels)
    fail(Result::invalid_argument, "{}={}: 1 to {} channels are possible, and 0 for no bound", field, asked, kMostChannels);
  for (const char* name : names) {
    const int64_t n = o.integer(name);
    if (!o.is_set(name) || n == 0) continue;
    if (n > kMostChannels) log_once({false, name, fmt::format("{}={}: {} channels are the most, and used", name, n, kMostChannels)});
    return {name, std::min<int64_t>(n, kMostChannels)};
  }
  return {field, asked};
}

// How many are forced, and the most of a free choice.
struct Channels {
  int forced = 0, most = 0;  // 0: none
};
Channels choose_channels(const Options& o, const Config& config) {
  const ChannelBound least = read_bound(o, {"NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS"}, "Config::min_channels", config.min_channels);
  const ChannelBound most = read_bound(o, {"NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS"}, "Config::max_channels", config.max_channels);
  const int64_t forced = o.integer("MUSTER_CHANNELS");
  if (forced > kMostChannels) fail(Result::invalid_usage, "MUSTER_CHANNELS={}: {} are the most", forced, kMostChannels);
  if (forced) return {static_cast<int>(forced), 0};
  int64_t channels = least.channels;
  if (most.channels && least.channels > most.channels) {
    const std::string conflict = fmt::format("{}={} is more than {}={}", least.name, least.channels, most.name, most.channels);
    if (least.name.starts_with("Config") && most.name.starts_with("Config")) fail(Result::invalid_argument, "{}", conflict);
    log_once({true, most.name, fmt::format("{}; {} used", conflict, most.channels == 1 ? "1 is" : fmt::format("{} are", most.channels))});
    channels = most.channels;
  }
  // The planner's own choice is one channel, the least there can be, so that only the lower bound can change it.
  return {channels > 1 ? static_cast<int>(channels) : 0, static_cast<int>(most.channels)};
}

size_t choose_slot_bytes(const Options& o) {
  const auto slot = static_cast<size_t>(o.integer("MUSTER_SLOT_BYTES"));
  if (slot && (slot < kLeastSlotBytes || slot > kMostSlotBytes || slot % kCacheLine))
    fail(Result::invalid_usage, "MUSTER_SLOT_BYTES={}: 1K to 1M in steps of {} bytes are possible", slot, kCacheLine);
  if (slot) return slot;
  const auto buffer = static_cast<size_t>(o.integer("NCCL_BUFFSIZE"));
  if (!buffer) return kSlotBytes;
  const size_t share = std::clamp(buffer / kSlots / kCacheLine * kCacheLine, kLeastSlotBytes, kMostSlotBytes);
  log_once({false, "NCCL_BUFFSIZE", fmt::format("NCCL_BUFFSIZE={} is read as MUSTER_SLOT_BYTES={}", buffer, share)});
  return share;
}

}  // namespace

void make_room_for_tuner(PlanInputs& inputs) {
  // Connections of all ranks to all: beyond some ranks a plugin's channels share what the planner's have.
  if (inputs.nranks <= kMostDirect) inputs.lanes = std::max(inputs.lanes, kMostChannels);
}

void fit_to_network(const Options& options, size_t slot_bytes, PlanInputs& inputs) {
  if (options.integer("MUSTER_SLOT_BYTES") || options.integer("NCCL_BUFFSIZE")) return;
  inputs.slot_bytes = std::clamp(slot_bytes / kCacheLine * kCacheLine, kLeastSlotBytes, kMostSlotBytes);
  inputs.message_bytes = inputs.slot_bytes;
}

void apply_plan_options(const Options& options, const Config& config, PlanInputs& inputs) {
  inputs.reproducible = options.flag("MUSTER_REPRODUCIBLE");
  choose_algorithm(options, inputs);
  const Channels channels = choose_channels(options, config);
  inputs.channels = channels.forced;
  inputs.most_channels = channels.most;
  inputs.lanes = std::max(kCollectiveLanes, inputs.channels);
  for (const auto& custom : inputs.custom) inputs.lanes = std::max(inputs.lanes, custom->lanes);
  inputs.slot_bytes = choose_slot_bytes(options);
  inputs.message_bytes = align_up(inputs.slot_bytes / 2, kCacheLine);  // so that two ranks' memory stays under 4 MiB
  check_forced_algorithm(inputs);
  nccl_protocols_for(Coll::all_reduce, options.text("NCCL_PROTO"));  // refuses what is no protocol
  WaitPolicy::choose(options.text("MUSTER_WAIT"), 1, 1);  // refuses what is no word of its own
  wants_report(options, 0);                               // likewise
  wants_copy_engines(options, config);                    // likewise
}

}  // namespace muster
