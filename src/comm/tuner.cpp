#include "comm/tuner.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/fork.h"
#include "base/log.h"
#include "plan/estimate.h"
#include "plan/selection.h"

namespace muster {
namespace {

using tuner_abi::kIgnore;
using tuner_abi::kRing;
using tuner_abi::kSimple;
using tuner_abi::kTree;

std::optional<tuner_abi::Function> function_of(Coll coll) {
  switch (coll) {
    case Coll::broadcast:
      return tuner_abi::kBroadcast;
    case Coll::reduce:
      return tuner_abi::kReduce;
    case Coll::all_gather:
      return tuner_abi::kAllGather;
    case Coll::reduce_scatter:
      return tuner_abi::kReduceScatter;
    case Coll::all_reduce:
      return tuner_abi::kAllReduce;
    default:
      return {};  // plugins know no others
  }
}

// By row of the cost table; null: there is none.
const Algorithm* named(int row, Coll coll) {
  const bool one_way = coll == Coll::broadcast || coll == Coll::reduce;
  if (row == kRing) return find_algorithm(coll, one_way ? "chain" : "ring");
  if (row == kTree) return find_algorithm(coll, "tree");
  return nullptr;
}

// As NCCL counts: all that a rank sends or receives, whichever is more.
uint64_t bytes_of(const CallShape& call, int nranks) {
  return call.count * size_of(call.type) * (splits_count(call.coll) ? 1 : static_cast<uint64_t>(nranks));
}

// What the plugin's table asks for; null: nothing but the planner's own choice.
const Algorithm* cheapest(const CallShape& call, const Algorithm* own, const tuner_abi::CostTable& before,
                          const tuner_abi::CostTable& after, double own_us) {
  if (std::memcmp(before, after, sizeof before) == 0) return nullptr;
  const bool own_is_named = own == named(kRing, call.coll) || own == named(kTree, call.coll);
  const Algorithm* best = own_is_named ? nullptr : own;
  auto least = static_cast<float>(own_us);
  bool asked_for = false;
  for (const int row : {kRing, kTree}) {
    const float was = before[row][kSimple], is = after[row][kSimple];
    const bool changed = was != is;
    // An algorithm without NCCL's name is left for one only that the plugin made cheaper. NaN is no price.
    if (was == kIgnore || !(is >= 0) || (!own_is_named && !changed) || (best && !(is < least))) continue;
    best = named(row, call.coll);
    least = is;
    asked_for = changed;
  }
  return best != own || asked_for ? best : nullptr;
}

// Prices for what Muster doesn't have.
bool has_others(const tuner_abi::CostTable& before, const tuner_abi::CostTable& after) {
  for (int row = 0; row < tuner_abi::kAlgorithms; ++row)
    for (int protocol = 0; protocol < tuner_abi::kProtocols; ++protocol)
      if (before[row][protocol] == kIgnore && after[row][protocol] >= 0) return true;
  return false;
}

}  // namespace

Tuner::Tuner(std::shared_ptr<const TunerLibrary> library, const TunerPlace& place,
             const std::string& communicator)
    : library_(std::move(library)), communicator_(communicator), fork_generation_(fork_generation()) {
  tuner_abi::Constants constants{};
  if (const int result = library_->begin(place, &constants, &context_))
    fail(Result::system_error,
         "communicator {}: {}: init returned error {}. NCCL_TUNER_PLUGIN=none goes on without it",
         communicator_, name(), result);
  for (const auto* at = reinterpret_cast<const double*>(&constants);
       at != reinterpret_cast<const double*>(&constants + 1); ++at)
    if (*at != 0) {
      log_info(Topic::tuning,
               "communicator {}: {} changed constants of NCCL's cost model, which has no effect: the "
               "planner's has others",
               communicator_, name());
      break;
    }
}

void Tuner::end() noexcept {
  if (fork_generation_ != fork_generation()) return;
  const std::lock_guard lock(mutex_);
  if (!std::exchange(ended_, true)) library_->end(context_);
}

CallShape Tuner::tuned(const CallShape& call, const PlanInputs& in) {
  const auto function = function_of(call.coll);
  if (!function || in.nranks == 1 || call.count == 0) return call;
  const Choice planned = choose(call, in);
  if (planned.custom) return call;  // a program that the user brought
  const Algorithm* const own = planned.algorithm;

  tuner_abi::CostTable table, filled;
  for (int row = 0; row < tuner_abi::kAlgorithms; ++row)
    for (int protocol = 0; protocol < tuner_abi::kProtocols; ++protocol) {
      const Algorithm* const a = protocol == kSimple ? named(row, call.coll) : nullptr;
      table[row][protocol] =
          a && can_run(*a, call, in) ? static_cast<float>(estimate_us(*a, call, in)) : kIgnore;
    }
  std::memcpy(filled, table, sizeof table);
  int channels = 0;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return call;
    if (const int result =
            library_->choose(context_, *function, bytes_of(call, in.nranks), table, &channels)) {
      if (!std::exchange(warned_, true))
        log_warn(
            "communicator {}: {} returned error {} for {} of {} bytes; the planner chooses alone where it "
            "does",
            communicator_, name(), result, name_of(call.coll), bytes_of(call, in.nranks));
      return call;
    }
  }

  CallShape chosen = call;
  const bool forced = find_algorithm(call.coll, in.algorithm) != nullptr;
  if (const Algorithm* const a =
          forced ? nullptr : cheapest(call, own, filled, table, estimate_us(*own, call, in)))
    chosen.allowed = only(*a);
  if (has_others(filled, table))
    log_info(Topic::tuning,
             "communicator {}: {} has prices for algorithms and protocols that can't be had for {}; they are "
             "ignored",
             communicator_, name(), name_of(call.coll));
  if (channels > 0) {
    const int most = in.most_channels ? std::min(in.most_channels, in.lanes) : in.lanes;
    if (in.channels)
      log_info(Topic::tuning, "communicator {}: {} asked for {} channels; options or the program say {}",
               communicator_, name(), channels, in.channels);
    else
      chosen.channels = static_cast<uint8_t>(std::min(channels, most));
  }
  return chosen;
}

}  // namespace muster
