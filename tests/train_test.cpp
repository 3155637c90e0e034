// The training example learns alike in every layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "support/shell.h"

namespace muster {
namespace {

using namespace test;  // NOLINT
using testing::HasSubstr;

constexpr int kSteps = 4;

struct Learned {
  std::vector<double> losses;
  std::string parameters;  // fingerprint
  std::string text;
};

Learned learn(int ranks, const std::string& arguments, const std::string& environment = "") {
  Learned l;
  const Output o =
      output_of("exec 2>&1; " + environment + " " MUSTER_TOOL " run -n " + std::to_string(ranks) +
                " " EXAMPLE_TRAIN " --sequences 8 --steps " + std::to_string(kSteps) + " " + arguments);
  EXPECT_EQ(o.status, 0) << arguments << "\n" << o.text;
  l.text = o.text;
  std::istringstream lines(o.text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, step, word;
    words >> first;
    double loss = 0;
    if (first == "step" && words >> step >> word >> loss) l.losses.push_back(loss);
    if (first == "parameters") words >> l.parameters;
  }
  EXPECT_EQ(l.losses.size(), size_t{kSteps}) << o.text;
  return l;
}

// A start from nothing knows that there are 128 bytes, and what is learned of text in four steps is which are
// frequent.
TEST(Train, LayoutsDifferInRoundingOnly) {
  const Learned alone = learn(1, "--layout dp=1 --micro-batches 1");
  ASSERT_EQ(alone.losses.size(), size_t{kSteps});
  EXPECT_NEAR(alone.losses[0], std::log(128), 0.1);
  EXPECT_LT(alone.losses[kSteps - 1], alone.losses[0] - 0.5);
  // A rounding of fp32, 6e-8, grows in four steps of Adam, whose first steps have the size of the learning
  // rate whatever the gradient's: where that is nearly 0 its sign may differ.
  for (const char* layout :
       {"--layout dp=8 --micro-batches 1", "--layout tp=4,dp=2 --micro-batches 2",
        "--layout pp=4,dp=2 --micro-batches 4", "--layout tp=2,pp=2,dp=2 --micro-batches 2 --zero 1",
        "--layout tp=2,pp=2,dp=2 --micro-batches 4 --zero 3 --tokens-split"}) {
    const Learned l = learn(8, layout);
    for (size_t i = 0; i < std::min(l.losses.size(), alone.losses.size()); ++i)
      EXPECT_NEAR(l.losses[i], alone.losses[i], i == 0 ? 2e-6 : 2e-3) << layout << ", step " << i;
  }
}

TEST(Train, StagesOfZeroAreBitForBitAlike) {
  const Learned ddp = learn(8, "--layout dp=8 --micro-batches 1 --zero 0", "MUSTER_REPRODUCIBLE=1");
  EXPECT_NE(ddp.parameters, "");
  for (const char* stage : {"1", "2", "3"}) {
    const Learned zero =
        learn(8, std::string("--layout dp=8 --micro-batches 1 --zero ") + stage, "MUSTER_REPRODUCIBLE=1");
    EXPECT_EQ(zero.losses, ddp.losses) << "stage " << stage;
    EXPECT_EQ(zero.parameters, ddp.parameters) << "stage " << stage;
  }
}

TEST(Train, WhatCantBeSplitIsSaid) {
  const auto said = [](int ranks, const std::string& arguments) {
    const Output o = output_of("exec 2>&1; " MUSTER_TOOL " run -n " + std::to_string(ranks) +
                               " " EXAMPLE_TRAIN " --steps 1 " + arguments);
    EXPECT_NE(o.status, 0);
    return o.text;
  };
  EXPECT_THAT(said(3, "--layout tp=3"), HasSubstr("4 heads can't be shared by 3 ranks"));
  EXPECT_THAT(said(3, "--layout dp=3"),
              HasSubstr("16 sequences can't be shared by 3 copies with 2 micro-batches each"));
  EXPECT_THAT(said(2, "--layout dp=4"), HasSubstr("4"));
}

}  // namespace
}  // namespace muster
