#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <vector>

#include "comm/state.h"
#include "comm/time_call.h"
#include "comm/tune.h"
#include "plan/bandwidth.h"
#include "plan/host_price.h"
#include "plan/prediction.h"
#include "plan/selection.h"
#include "plan/solve_constant.h"

namespace muster {
namespace {

// All ways to make one call.
struct Race {
  uint64_t bytes = 0;
  std::vector<const Algorithm*> algorithms;
  std::vector<TimedCall> calls;  // one by each
  double us = 0;                 // about, of the longest
};

constexpr int kRaceRounds = 3;  // in each of several jobs (tools/muster/tune.cpp)

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

// Since then, of the rank that took longest, so that all go on alike.
double seconds_of_slowest(Communicator& comm, std::chrono::steady_clock::time_point begin) {
  double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), most = 0;
  comm.all_reduce(&mine, &most, 1, DataType::float64, RedOp::max);
  return most;
}

}  // namespace

Constants tune_calls(Communicator& comm, Constants known, std::chrono::duration<double> budget) {
  require_nothing_forced(comm);
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

  // Cheap ones first: what is over when the time is up are the largest sizes.
  std::ranges::stable_sort(races, {}, [&](const Race& r) { return seconds_of(r, batch); });
  const auto begin = std::chrono::steady_clock::now();
  std::vector<double> spreads;
  std::map<const Algorithm*, std::map<uint64_t, double>> us;
  double expected = 0;
  for (const Race& race : races) {
    const double next = seconds_of(race, batch), spent = seconds_of_slowest(comm, begin);
    if (expected > 0 && spent + next * std::max(1.0, spent / expected) > budget.count()) break;
    expected += next;
    const auto times = time_calls(comm, race.calls, std::chrono::duration<double>(batch), kRaceRounds);
    for (size_t i = 0; i < times.size(); ++i) {
      us[race.algorithms[i]][race.bytes] = median(times[i]);
      add_spread(times[i], spreads);
    }
  }
  for (const Algorithm& a : algorithms())
    if (const auto times = us.find(&a); times != us.end()) {
      MeasuredRow row{&a, in.nranks, in.cores, {}};
      for (const auto& [bytes, t] : times->second) row.points.push_back({bytes, t});
      known.calls().add(std::move(row));
    }
  const Constant& before = known.get("host.spread");
  double spread = median(std::move(spreads));
  if (before.kind == "measured") spread = std::max(spread, before.value);  // of other ranks
  set_measured(
      known, "host.spread", spread,
      fmt::format("{} batches of each call, {:.2g} ms or more each: median distance from their median, "
                  "the largest of all numbers of ranks",
                  kRaceRounds, batch * 1e3));
  return known;
}

}  // namespace muster
