// Whole calls that were measured: read and written, and prices and choices by them.
#include "plan/measured_calls.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "plan/constants.h"
#include "plan/host_price.h"
#include "plan/prediction.h"
#include "support/outcome.h"

namespace muster {
namespace {

using test::outcome_of;
using testing::HasSubstr;
using testing::StartsWith;

PlanInputs inputs(int ranks, int cores = 2) {
  PlanInputs in;
  in.nranks = ranks;
  in.cores = cores;
  in.slot_bytes = 32 << 10;
  in.message_bytes = 16 << 10;
  in.cache_bytes = 32 << 20;
  in.windows = true;
  return in;
}

Constants with(const std::string& lines) {
  Constants k = Constants::built_in();
  k.override_with(Constants::read(lines, "test"), "test");
  return k;
}

CallShape call_of(Coll coll, uint64_t bytes, int ranks, DataType type = DataType::float32) {
  CallShape call{coll, type, RedOp::sum, 0, 0};
  call.count = count_of(call, bytes, ranks);
  return call;
}

struct Priced {
  double us, model;
};
Priced price(Coll coll, const char* algorithm, uint64_t bytes, const PlanInputs& in, const Constants& k,
             DataType type = DataType::float32) {
  const Algorithm& a = *find_algorithm(coll, algorithm);
  const CallShape call = call_of(coll, bytes, in.nranks, type);
  return {host_price(a, call, in, k).us, host_model_price(a, call, in, k).us};
}

TEST(MeasuredCalls, OfSeveralMeasurementsTheMiddleCounts) {
  const MeasuredCalls middle = MeasuredCalls::middle_of({with("calls broadcast chain 8 2 8:5 32:9\ncalls broadcast tree 8 2 8:1").calls(),
                                                         with("calls broadcast chain 8 2 8:100 32:101 128:102").calls(),
                                                         with("calls broadcast chain 8 2 8:6 32:7\ncalls broadcast chain 4 2 8:2").calls()});
  ASSERT_EQ(middle.rows().size(), 3u);
  EXPECT_THAT(middle.rows()[0].to_text(), testing::EndsWith("8 2  8:6 32:9 128:102"));
  EXPECT_THAT(middle.rows()[1].to_text(), testing::EndsWith("8 2  8:1"));
  EXPECT_THAT(middle.rows()[2].to_text(), testing::EndsWith("4 2  8:2"));
  EXPECT_TRUE(MeasuredCalls::middle_of({}).rows().empty());
}

TEST(MeasuredCalls, LinesReadBackAsTheyAreWritten) {
  const std::string text = "calls broadcast \t chain  8 2 8:5.125 32:6  1048576:700.5";
  const Constants k = Constants::read(text, "test");
  ASSERT_EQ(k.calls().rows().size(), 1u);
  const MeasuredRow& row = k.calls().rows()[0];
  EXPECT_EQ(row.algorithm, find_algorithm(Coll::broadcast, "chain"));
  EXPECT_EQ(row.ranks, 8);
  EXPECT_EQ(row.cores, 2);
  ASSERT_EQ(row.points.size(), 3u);
  EXPECT_EQ(row.points[2].bytes, 1048576u);
  EXPECT_EQ(row.points[0].us, 5.125);
  const Constants again = Constants::read(k.to_text(), "again");
  ASSERT_EQ(again.calls().rows().size(), 1u);
  EXPECT_TRUE(again.calls().rows()[0].is_of(row));
  EXPECT_EQ(again.calls().rows()[0].to_text(), row.to_text());
}

TEST(MeasuredCalls, WhatIsWrongInALineIsNamed) {
  const auto error = [](const std::string& text) {
    const test::Outcome o = outcome_of([&] { Constants::read(text, "file"); });
    EXPECT_EQ(o.code, Result::invalid_argument) << text;
    return o.text;
  };
  EXPECT_THAT(error("# x\ncalls broadcast chain 8\n"), HasSubstr("file:2: 3 words are too few"));
  EXPECT_THAT(error("calls broadcast chains 8 2 8:5"), HasSubstr("no broadcast by chains"));
  EXPECT_THAT(error("calls broadcasts chain 8 2 8:5"), HasSubstr("run muster tune again"));
  EXPECT_THAT(error("calls broadcast chain one 2 8:5"), HasSubstr("'one' ranks on '2' cores"));
  EXPECT_THAT(error("calls broadcast chain 8 0 8:5"), HasSubstr("'8' ranks on '0' cores"));
  for (const char* point :
       {"8", ":", "8:", ":5", "8:five", "0:5", "8:0", "8:-1", "8:inf", "8:nan", "-8:5", "8:5us"})
    EXPECT_THAT(error(std::string("calls broadcast chain 8 2 ") + point),
                HasSubstr("'" + std::string(point) + "' is no time of a size"));
  EXPECT_THAT(error("calls broadcast chain 8 2 8:5 8:6"), HasSubstr("8 bytes come after 8"));
  EXPECT_THAT(error("calls broadcast chain 8 2 8:5\ncalls broadcast chain 8 2 8:6"),
              HasSubstr("file:2: broadcast chain of 8 ranks on 2 cores is there twice"));
}

TEST(MeasuredCalls, SmallerOnesThatSeemDearerGetTheMedian) {
  MeasuredCalls calls;
  calls.add(MeasuredRow::read("all_reduce direct 2 2 8:1 32:5 128:3 512:4 2048:9 8192:8"));
  std::vector<double> us;
  for (const MeasuredRow::Point& p : calls.rows()[0].points) us.push_back(p.us);
  EXPECT_THAT(us, testing::ElementsAre(1, 4, 4, 4, 8.5, 8.5));
  calls.add(MeasuredRow::read("all_reduce direct 4 2 8:100 32:3 128:4 512:5 2048:6"));
  us.clear();
  for (const MeasuredRow::Point& p : calls.rows()[1].points) us.push_back(p.us);
  EXPECT_THAT(us, testing::ElementsAre(4, 4, 4, 5, 6)) << "the first is far off";
  calls.add(MeasuredRow::read("all_reduce direct 2 2 8:7"));
  ASSERT_EQ(calls.rows().size(), 2u);  // the newer one
  EXPECT_EQ(calls.rows()[0].points[0].us, 7);
}

TEST(MeasuredCalls, TheNearestRanksStandForOthersThatShareCoresAlike) {
  MeasuredCalls calls;
  for (const char* row : {"2 2", "8 8", "4 2", "8 2", "16 2"})
    calls.add(MeasuredRow::read("all_reduce direct " + std::string(row) + " 8:1"));
  const Algorithm& direct = *find_algorithm(Coll::all_reduce, "direct");
  const auto nearest = [&](int ranks, int cores) {
    const MeasuredRow* const row = calls.nearest(direct, ranks, cores);
    return row ? std::pair(row->ranks, row->cores) : std::pair(0, 0);
  };
  EXPECT_EQ(nearest(2, 2), std::pair(2, 2));
  EXPECT_EQ(nearest(3, 2), std::pair(4, 2));  // not 2, whose ranks had a core each
  EXPECT_EQ(nearest(5, 2), std::pair(4, 2));
  EXPECT_EQ(nearest(6, 2), std::pair(8, 2));
  EXPECT_EQ(nearest(64, 2), std::pair(16, 2));
  EXPECT_EQ(nearest(3, 8), std::pair(2, 2));
  EXPECT_EQ(nearest(8, 8), std::pair(8, 8));
  EXPECT_EQ(nearest(9, 8), std::pair(8, 2));
  EXPECT_EQ(calls.nearest(*find_algorithm(Coll::all_reduce, "ring"), 2, 2), nullptr);
}

TEST(CorrectedPrice, IsTheTimeWhereItWasMeasured) {
  const Constants k = with("calls all_gather direct 4 2 16:11 1024:12 1048576:900");
  for (const auto& [bytes, us] : {std::pair(16, 11), {1024, 12}, {1048576, 900}})
    EXPECT_NEAR(price(Coll::all_gather, "direct", static_cast<uint64_t>(bytes), inputs(4), k).us, us, 1e-9);
}

TEST(CorrectedPrice, GoesFromOneTimeToTheNextAsTheModelDoes) {
  const Constants k = with("calls broadcast chain 8 2 64:20 65536:500");
  const auto at = [&](uint64_t bytes) { return price(Coll::broadcast, "chain", bytes, inputs(8), k); };
  const double low = at(64).model, high = at(65536).model;
  for (const uint64_t bytes : {256, 4096, 32768})
    EXPECT_NEAR(at(bytes).us, 20 + 480 * (at(bytes).model - low) / (high - low), 1e-9) << bytes;
  EXPECT_NEAR(at(8).us, at(8).model * 20 / low, 1e-9);
  EXPECT_NEAR(at(16 << 20).us, at(16 << 20).model * 500 / high, 1e-6);
}

TEST(CorrectedPrice, OfAModelThatIsWrongByAFactorHasThatFactorEverywhere) {
  Constants k = Constants::built_in();
  const Algorithm& direct = *find_algorithm(Coll::all_reduce, "direct");
  std::string row = "calls all_reduce direct 4 2";
  for (const uint64_t bytes : {8, 512, 32768, 2097152})
    row += fmt::format(" {}:{}", bytes,
                       1.5 * host_price(direct, call_of(Coll::all_reduce, bytes, 4), inputs(4), k).us);
  k = with(row);
  for (const DataType type : {DataType::float32, DataType::float16, DataType::float64, DataType::int8})
    for (const int ranks : {3, 4, 5, 8, 16})
      for (uint64_t bytes = 8; bytes <= 64 << 20; bytes *= 2) {
        const Priced p = price(Coll::all_reduce, "direct", bytes, inputs(ranks), k, type);
        // The model is flat, or nearly, where a cut into lines leaves some ranks nothing to do.
        if (bytes >= 4096) {
          EXPECT_NEAR(p.us / p.model, 1.5, 0.05) << ranks << " ranks, " << bytes;
        }
      }
}

// Outside caches the model is right where its constants were measured; the last time was in them.
TEST(CorrectedPrice, BeyondTheLastTimeItComesBackToTheModel) {
  const std::string row = "calls all_reduce direct 2 2 8:1 65536:";
  for (const double factor : {0.25, 4.0}) {
    const double last = factor * price(Coll::all_reduce, "direct", 65536, inputs(2), with("host.slot.memory 10 GB/s measured here")).model;
    const std::string text = row + fmt::format("{}\n", last);
    const Constants here = with(text + "host.slot.memory 10 GB/s measured here\n"), elsewhere = with(text);
    const auto ratio = [&](uint64_t bytes, const Constants& k) {
      const Priced p = price(Coll::all_reduce, "direct", bytes, inputs(2), k);
      return p.us / p.model;
    };
    EXPECT_NEAR(ratio(65536, here), factor, 1e-9);
    const double between = ratio(1 << 20, here);
    EXPECT_GT(between, std::min(1.0, factor));
    EXPECT_LT(between, std::max(1.0, factor));
    EXPECT_NEAR(ratio(64 << 20, here), 1, 1e-9);  // 256 MB of buffers, 32 MiB of cache
    EXPECT_NEAR(ratio(64 << 20, elsewhere), ratio(65536, elsewhere), 1e-9);
  }
}

TEST(CorrectedPrice, AllPartsChangeAlike) {
  const Constants k = with("calls all_reduce one_shot 4 2 8:100 65536:1000");
  const Algorithm& a = *find_algorithm(Coll::all_reduce, "one_shot");
  const CallShape call = call_of(Coll::all_reduce, 8192, 4);
  const HostPrice p = host_price(a, call, inputs(4), k), model = host_model_price(a, call, inputs(4), k);
  const double ratio = p.us / model.us;
  EXPECT_NEAR(p.messages_us, ratio * model.messages_us, 1e-9);
  EXPECT_NEAR(p.bytes_us, ratio * model.bytes_us, 1e-9);
  EXPECT_NEAR(p.turns_us, ratio * model.turns_us, 1e-9);
}

TEST(CorrectedPrice, WhatWasNotMeasuredCostsWhatTheModelSays) {
  const Constants k = with("calls all_reduce one_shot 2 2 8:100\ncalls all_reduce direct 8 2 8:100");
  for (const Priced p : {price(Coll::all_reduce, "one_shot", 4096, inputs(8), k),
                         price(Coll::all_reduce, "direct", 4096, inputs(2), k),
                         price(Coll::broadcast, "direct", 4096, inputs(8), k)})
    EXPECT_EQ(p.us, p.model);
}

// Whatever was measured, of whatever ranks and types: no size is cheaper than half of it.
TEST(CorrectedPrice, MoreDataNeverCostsLess) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> noise(-1.5, 1.5);
  for (const Algorithm& a : algorithms())
    for (const auto& [ranks, measured] : {std::pair(2, 2), {3, 4}, {8, 8}}) {
      MeasuredRow row{&a, measured, 2, {}};
      const uint64_t last = 32ull << (random() % 21);
      for (uint64_t bytes = 32; bytes <= last; bytes *= 4) {
        const CallShape call = call_of(a.coll, bytes, measured);
        const double us = host_model_price(a, call, inputs(measured), Constants::built_in()).us;
        row.points.push_back({bytes, us * std::exp(noise(random))});
      }
      Constants k = with("host.slot.memory 12 GB/s measured here\nhost.window.memory 19 GB/s measured here\n");
      k.calls().add(row);
      for (const DataType type : {DataType::float32, DataType::bfloat16}) {
        double before = 0;
        for (uint64_t count = 2; count <= 32 << 20; count *= 4) {
          const CallShape call{a.coll, type, RedOp::sum, 0, count};
          const double us = host_price(a, call, inputs(ranks), k).us;
          ASSERT_GE(us, before * 0.999) << a.name << " " << name_of(a.coll) << ", " << ranks << " ranks by "
                                        << measured << ", count " << count;
          before = us;
        }
      }
    }
}

const char* chosen(const std::string& lines, Coll coll, uint64_t bytes, int ranks,
                   std::string* reason = nullptr) {
  PlanInputs in = inputs(ranks);
  in.tuned = std::make_shared<const Constants>(with(lines));
  const Choice c = choose(call_of(coll, bytes, ranks), in);
  if (reason) *reason = c.reason;
  return c.algorithm->name;
}

const char* chosen_windows(const std::string& lines, Coll coll, uint64_t bytes, int ranks) {
  PlanInputs in = inputs(ranks);
  in.tuned = std::make_shared<const Constants>(with(lines));
  const Choice c = choose_windows(call_of(coll, bytes, ranks), in);
  return c.algorithm ? c.algorithm->name : "slots";
}

// As measured where the model was wrong: 8 ranks on 2 cores, direct took 0.4 of chain's time.
TEST(MeasuredChoice, IsTheFastestOfThoseMeasured) {
  std::string row;
  for (const char* other : {"binomial", "scatter_gather", "tree"})
    row += fmt::format("calls broadcast {} 8 2 32768:300\n", other);
  const std::string direct =
      row + "calls broadcast direct 8 2 32768:100\ncalls broadcast chain 8 2 32768:250\n";
  const std::string chain =
      row + "calls broadcast direct 8 2 32768:250\ncalls broadcast chain 8 2 32768:100\n";
  std::string reason;
  EXPECT_STREQ(chosen(direct, Coll::broadcast, 32768, 8, &reason), "direct");
  EXPECT_THAT(reason, StartsWith("cheapest by the tuning profile: 100 us, chain 250"));
  EXPECT_STREQ(chosen(chain, Coll::broadcast, 32768, 8), "chain");
}

// Among those about equal it is what runs without a profile.
TEST(MeasuredChoice, DoesNotHangOnNoise) {
  const auto lines = [](double one_shot, double direct, double spread) {
    return fmt::format(
        "calls all_reduce one_shot 2 2 8192:{}\ncalls all_reduce direct 2 2 8192:{}\nhost.spread {} - "
        "measured x\n",
        one_shot, direct, spread);
  };
  std::string reason;
  EXPECT_STREQ(chosen(lines(10.4, 10, 0.05), Coll::all_reduce, 8192, 2, &reason), "one_shot");
  EXPECT_THAT(reason, StartsWith("cheapest by the tuning profile, give or take 5 %: 10.4 us, direct 10"));
  EXPECT_STREQ(chosen(lines(10.6, 10, 0.05), Coll::all_reduce, 8192, 2), "direct");
  EXPECT_STREQ(chosen(lines(10.4, 10, 0.01), Coll::all_reduce, 8192, 2), "direct");
  EXPECT_STREQ(chosen(lines(10.4, 10, 0), Coll::all_reduce, 8192, 2), "direct");
}

TEST(MeasuredChoice, OfWindowsIsMadeTheSameWay) {
  const auto lines = [](uint64_t bytes, double window, double slots) {
    return fmt::format(
        "calls all_gather window 2 2 {0}:{1}\ncalls all_gather direct 2 2 {0}:{2}\ncalls all_gather ring 2 2 "
        "{0}:{3}\ncalls all_gather bruck 2 2 {0}:{3}\n"
        "host.spread 0.05 - measured x\n",
        bytes, window, slots, 10 * slots);
  };
  // Without a profile windows are used from 8 KiB on.
  EXPECT_STREQ(chosen_windows(lines(65536, 10.4, 10), Coll::all_gather, 65536, 2), "window");
  EXPECT_STREQ(chosen_windows(lines(65536, 10.6, 10), Coll::all_gather, 65536, 2), "slots");
  EXPECT_STREQ(chosen_windows(lines(4096, 10, 10.4), Coll::all_gather, 4096, 2), "slots");
  EXPECT_STREQ(chosen_windows(lines(4096, 10, 10.6), Coll::all_gather, 4096, 2), "window");
}

}  // namespace
}  // namespace muster
