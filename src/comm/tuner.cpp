#include "comm/tuner.h"

#include <algorithm>
#include <cstring>
#include <iterator>
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

// Where a protocol's prices are in a row.
int column_of(Protocol p) {
  return p == Protocol::ll ? tuner_abi::kLl : p == Protocol::ll128 ? tuner_abi::kLl128 : kSimple;
}

// What the plugin's table asks for; null: nothing but the planner's own choice.
const PricedWay* cheapest(const std::vector<PricedWay>& ways, const PricedWay& own,
                          const tuner_abi::CostTable& before, const tuner_abi::CostTable& after, Coll coll) {
  if (std::memcmp(before, after, sizeof before) == 0) return nullptr;
  const bool own_is_named = own.algorithm == named(kRing, coll) || own.algorithm == named(kTree, coll);
  const PricedWay* best = own_is_named ? nullptr : &own;
  auto least = static_cast<float>(own.us);
  bool asked_for = false;
  for (const int row : {kRing, kTree})
    for (const PricedWay& way : ways) {
      if (way.algorithm != named(row, coll)) continue;
      const float was = before[row][column_of(way.protocol)], is = after[row][column_of(way.protocol)];
      const bool changed = was != is;
      // An algorithm without NCCL's name is left for one only that the plugin made cheaper. NaN is no price.
      if (!(is >= 0) || (!own_is_named && !changed) || (best && !(is < least))) continue;
      best = &way;
      least = is;
      asked_for = changed;
    }
  const bool is_own = !best || (best->algorithm == own.algorithm && best->protocol == own.protocol);
  return is_own && !asked_for ? nullptr : best;
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

std::optional<Tuner::Wish> Tuner::ask(const CallShape& call, int nranks, const std::vector<PricedWay>& ways,
                                      const PricedWay& own) {
  tuner_abi::CostTable table, filled;
  for (auto& row : table) std::fill(std::begin(row), std::end(row), kIgnore);
  for (const PricedWay& way : ways)
    for (const int row : {kRing, kTree})
      if (way.algorithm == named(row, call.coll))
        table[row][column_of(way.protocol)] = static_cast<float>(way.us);
  std::memcpy(filled, table, sizeof table);
  Wish wish;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return std::nullopt;
    if (const int result = library_->choose(context_, *function_of(call.coll), bytes_of(call, nranks), table,
                                            &wish.channels)) {
      if (!std::exchange(warned_, true))
        log_warn(
            "communicator {}: {} returned error {} for {} of {} bytes; the planner chooses alone where it "
            "does",
            communicator_, name(), result, name_of(call.coll), bytes_of(call, nranks));
      return std::nullopt;
    }
  }
  if (const PricedWay* const way = cheapest(ways, own, filled, table, call.coll)) wish.way = *way;
  if (has_others(filled, table))
    log_info(Topic::tuning,
             "communicator {}: {} has prices for algorithms and protocols that can't be had for {}; they are "
             "ignored",
             communicator_, name(), name_of(call.coll));
  return wish;
}

CallShape Tuner::applied(const Wish& wish, const CallShape& call, const PlanInputs& in) const {
  CallShape chosen = call;
  if (wish.way && !find_algorithm(call.coll, in.algorithm)) chosen.allowed = only(*wish.way->algorithm);
  if (wish.channels > 0) {
    const int most = in.most_channels ? std::min(in.most_channels, in.lanes) : in.lanes;
    if (in.channels)
      log_info(Topic::tuning, "communicator {}: {} asked for {} channels; options or the program say {}",
               communicator_, name(), wish.channels, in.channels);
    else
      chosen.channels = static_cast<uint8_t>(std::min(wish.channels, most));
  }
  return chosen;
}

CallShape Tuner::tuned(const CallShape& call, const PlanInputs& in) {
  if (!function_of(call.coll) || in.nranks == 1 || call.count == 0) return call;
  const Choice planned = choose(call, in);
  if (planned.custom) return call;  // a program that the user brought
  std::vector<PricedWay> ways;
  for (const int row : {kRing, kTree})
    if (const Algorithm* const a = named(row, call.coll); a && can_run(*a, call, in))
      ways.push_back({a, Protocol::simple, estimate_us(*a, call, in)});
  const PricedWay own{planned.algorithm, Protocol::simple, estimate_us(*planned.algorithm, call, in)};
  const auto wish = ask(call, in.nranks, ways, own);
  return wish ? applied(*wish, call, in) : call;
}

GpuWish Tuner::tuned_on_gpus(const CallShape& call, const GpuPlanInputs& in, const std::string& protocols) {
  GpuWish wished{call, protocols, {}};
  if (!function_of(call.coll) || in.plan.nranks == 1 || call.count == 0) return wished;
  const std::vector<PricedWay> ways = ways_on_gpus(call, in, protocols);
  if (ways.empty()) return wished;
  const auto wish = ask(call, in.plan.nranks, ways, ways.front());
  if (!wish) return wished;
  wished.call = applied(*wish, call, in.plan);
  if (wish->way) wished.protocols = name_of(wish->way->protocol);
  if (wish->way || wished.call.channels != call.channels) wished.by = name();
  return wished;
}

}  // namespace muster
