// Constants found from measured times.
#include "plan/solve_constant.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

const Constants& known() { return Constants::built_in(); }

TEST(SolveConstant, TimesRatesAndSharesComeBack) {
  const auto time = [](const Constants& k) { return 3 + 2 * k("host.turn"); };
  EXPECT_NEAR(solve_constant(known(), "host.turn", 3 + 2 * 7.5, kMostConstant, time), 7.5, 1e-4);
  const auto rate = [](const Constants& k) { return 1 + 100 / k("host.slot"); };
  EXPECT_NEAR(solve_constant(known(), "host.slot", 1 + 100 / 12.5, kMostConstant, rate), 12.5, 1e-4);
  // A share has no unit that tells a rate from a time.
  const auto share = [](const Constants& k) { return 1 + 100 / k("network.share"); };
  EXPECT_NEAR(solve_constant(known(), "network.share", 1 + 100 / 0.8, kMostConstant, share), 0.8, 1e-5);
}

TEST(SolveConstant, WhatNoValueExplainsIsTheNearerEnd) {
  const auto rate = [](const Constants& k) { return 10 + 100 / k("host.slot"); };
  EXPECT_NEAR(solve_constant(known(), "host.slot", 9, kMostConstant, rate), kMostConstant, 1);
  EXPECT_NEAR(solve_constant(known(), "host.slot", 9, 50, rate), 50, 1e-3);
  EXPECT_NEAR(solve_constant(known(), "host.slot", 1e12, kMostConstant, rate), kLeastConstant, 1e-8);
}

TEST(SolveConstant, WhatWasMeasuredIsInTheConstantsUnit) {
  Constants all = known();
  set_measured(all, "host.turn", 2.5, "a test: 5 us");
  const Constant& turn = all.get("host.turn");
  EXPECT_EQ(turn.value, 2.5);
  EXPECT_EQ(turn.unit, "us");
  EXPECT_EQ(turn.kind, "measured");
  EXPECT_EQ(turn.source, "a test: 5 us");
}

}  // namespace
}  // namespace muster
