// The price of collectives between hosts beside MPI's measured ones (tests/data/pico_all_reduce.tsv): is what would be chosen among the
// measured best, and how far are predictions off? docs/validation.md shows what this prints.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "plan/hosts_price.h"
#include "support/corpus.h"

namespace muster {
namespace {

// As the machines' operators describe them: a core's reach in the last-level cache, and a rank's port.
struct System {
  const char* name;
  double cache_mb, gbit_per_s;
};
constexpr System kSystems[] = {
    {"leonardo", 48, 100},      // Xeon 8358; InfiniBand HDR100
    {"lumi", 32, 200},          // EPYC 7A53, 32 MiB per 8 cores; Slingshot 11
    {"mare_nostrum", 105, 200}  // Xeon 8460Y+ or 8480+; InfiniBand NDR200
};

constexpr const char* kAlgorithms[] = {"ring", "doubling", "halving_doubling"};  // in the order of the columns

struct MpiCell {
  std::string system, test;
  int nodes = 0;
  uint64_t bytes = 0;
  std::vector<std::optional<double>> us;
};

std::vector<MpiCell> read_cells() {
  std::istringstream lines(test::text_of(test::data("pico_all_reduce.tsv")));
  std::vector<MpiCell> cells;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    MpiCell& c = cells.emplace_back();
    words >> c.system >> c.test >> c.nodes >> c.bytes;
    for (std::string word; words >> word;) c.us.push_back(word == "-" ? std::nullopt : std::optional(std::stod(word)));
    EXPECT_EQ(c.us.size(), std::size(kAlgorithms)) << line;
  }
  return cells;
}

const System& system_of(const MpiCell& c) {
  return *std::find_if(std::begin(kSystems), std::end(kSystems), [&](const System& s) { return c.system == s.name; });
}

double predicted(const char* algorithm, const MpiCell& c) {
  static const Constants constants = [] {
    Constants k = Constants::built_in();
    // MPI sends whole messages, and adds with one core by code for any type.
    k.override_with(Constants::read("host.combine 10 GB/s fitted MN5 32 nodes all_reduce of 8 MiB", "MPI"), "MPI");
    return k;
  }();
  const System& s = system_of(c);
  PlanInputs in;
  in.nranks = c.nodes;
  in.slot_bytes = size_t{1} << 40;
  in.cache_bytes = static_cast<size_t>(s.cache_mb * 1e6);
  Placement each_alone;
  each_alone.host_of.resize(static_cast<size_t>(c.nodes));
  std::iota(each_alone.host_of.begin(), each_alone.host_of.end(), 0);
  in.placement = std::make_shared<const Placement>(std::move(each_alone));
  in.network = {HostNetwork::Kind::rdma, s.gbit_per_s / 8};
  const CallShape call{Coll::all_reduce, DataType::int32, RedOp::sum, 0, c.bytes / 4};
  return hosts_price(*find_algorithm(Coll::all_reduce, algorithm), call, in, constants).value().us;
}

struct Summary {
  std::vector<double> ratios, errors;
};

double mean(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size()); }
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

TEST(ValidationMpi, WhatWouldBeChosenIsAmongTheMeasuredBest) {
  std::map<std::pair<std::string, int>, Summary> by_job;
  Summary fitted, test;
  for (const MpiCell& c : read_cells()) {
    Summary& job = by_job[{c.system, c.nodes}];
    Summary& all = c.system == "mare_nostrum" && c.nodes == 32 ? fitted : test;
    double best = HUGE_VAL, cheapest = HUGE_VAL, taken = 0;
    std::string pick, row;
    for (size_t i = 0; i < std::size(kAlgorithms); ++i) {
      if (!c.us[i]) continue;
      const double us = predicted(kAlgorithms[i], c), error = std::abs(us / *c.us[i] - 1);
      job.errors.push_back(error);
      all.errors.push_back(error);
      best = std::min(best, *c.us[i]);
      if (us < cheapest) {
        cheapest = us;
        taken = *c.us[i];
        pick = kAlgorithms[i];
      }
      row += fmt::format("  {} {:.4g}/{:.4g}", kAlgorithms[i], us, *c.us[i]);
    }
    const auto measured = std::count_if(c.us.begin(), c.us.end(), [](const auto& us) { return us.has_value(); });
    if (measured > 1) {
      job.ratios.push_back(taken / best);
      all.ratios.push_back(taken / best);
    }
    fmt::print("{:<12} {:>4} {:>9} B  {}{}\n", c.system, c.nodes, c.bytes, measured > 1 ? fmt::format("{:<16} {:.2f}", pick, taken / best) : std::string(21, ' '), row);
  }
  fmt::print("\n| system, nodes | ratio to the best, mean (cells) | worst | error, median (cells) |\n|---|---|---|---|\n");
  for (const auto& [key, s] : by_job)
    fmt::print("| {}, {} | {} | {} | {:.0f} % ({}) |\n", key.first, key.second, s.ratios.empty() ? "-" : fmt::format("{:.2f} ({})", mean(s.ratios), s.ratios.size()),
               s.ratios.empty() ? "-" : fmt::format("{:.2f}", *std::max_element(s.ratios.begin(), s.ratios.end())), 100 * median(s.errors), s.errors.size());
  fmt::print("\nfitted: {:.3f} of {} cells, error {:.1f} %; test: {:.3f} of {} cells, error {:.1f} %\n", mean(fitted.ratios), fitted.ratios.size(), 100 * median(fitted.errors),
             mean(test.ratios), test.ratios.size(), 100 * median(test.errors));
  EXPECT_GE(test.ratios.size(), 90u);
  EXPECT_LE(mean(test.ratios), 1.10);
  EXPECT_LE(median(test.errors), 0.40);
}

}  // namespace
}  // namespace muster
