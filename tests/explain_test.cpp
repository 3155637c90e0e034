// MUSTER_EXPLAIN: a line for each distinct call, and a table of predicted against measured at the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "comm/call_report.h"
#include "comm/state.h"
#include "muster/muster.h"
#include "plan/estimate.h"
#include "plan/host_price.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::outcome_of;
using test::run_processes;
using test::run_threads;
using test::Variable;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> lines(const std::string& text, const std::string& with) {
  std::vector<std::string> found;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (line.find(with) != line.npos) found.push_back(line);
  return found;
}

// What goes to stderr meanwhile.
std::string said(const std::function<void()>& f) {
  testing::internal::CaptureStderr();
  f();
  return testing::internal::GetCapturedStderr();
}

void sum(Communicator& c, size_t count) {
  std::vector<float> in(count, 1), out(count);
  c.all_reduce(in.data(), out.data(), count, DataType::float32, RedOp::sum);
}

// A row of the table, without its head.
struct TableRow {
  double calls = 0, predicted = 0, median = 0, least = 0, ratio = 0;
  std::string what;
};
std::vector<TableRow> table(const std::string& text, const std::string& rank = "rank 0: ") {
  std::vector<TableRow> rows;
  bool in_table = false;
  for (const std::string& line : lines(text, rank)) {
    std::istringstream in(line.substr(line.find(rank) + rank.size()));
    if (line.find("median/predicted") != line.npos) {
      in_table = true;
    } else if (in_table) {
      TableRow r;
      in >> r.calls >> r.predicted >> r.median >> r.least >> r.ratio >> std::ws;
      std::getline(in, r.what);
      EXPECT_FALSE(in.bad()) << line;
      rows.push_back(r);
    }
  }
  return rows;
}

TEST(Explain, EachDistinctCallIsSaidOnceAndTheTableCountsAll) {
  const Variable on("MUSTER_EXPLAIN", "1");
  const std::string text = said([] {
    run_threads(2, [](Communicator& c, int) {
      for (int i = 0; i < 5; ++i) sum(c, 2);
      for (int i = 0; i < 3; ++i) sum(c, 3);
      sum(c, 2);
      std::vector<int> parts(2);
      const int mine = c.rank();
      c.all_gather(&mine, parts.data(), 1, DataType::int32);
    });
  });
  EXPECT_THAT(lines(text, "predicted 0"), testing::SizeIs(3)) << text;
  EXPECT_THAT(text, ContainsRegex("Muster EXPLAIN [0-9a-f]{8} rank 0: all_reduce\\(count 2, float32, sum\\), 2 ranks: one_shot \\(.*\\), 1 channel, tile [0-9]+ B: "
                                  "up to 16384 bytes one round .*; predicted 0\\.[0-9]+ us\n"));
  EXPECT_THAT(text, Not(HasSubstr("rank 1:")));
  const std::vector<TableRow> rows = table(text);
  ASSERT_EQ(rows.size(), 3u) << text;
  EXPECT_EQ(rows[0].calls, 6);
  EXPECT_EQ(rows[0].what, "all_reduce(count 2, float32, sum) by one_shot");
  EXPECT_EQ(rows[1].calls, 3);
  EXPECT_EQ(rows[2].what, "all_gather(count 1, int32) by direct");
  for (const TableRow& r : rows) {
    EXPECT_GT(r.least, 0);
    EXPECT_LE(r.least, r.median);
    EXPECT_GT(r.predicted, 0);
  }
}

TEST(Explain, EveryRankMaySay) {
  const Variable on("MUSTER_EXPLAIN", "all");
  const std::string text = said([] { run_threads(3, [](Communicator& c, int) { sum(c, 5); }); });
  for (const char* rank : {"rank 0: ", "rank 1: ", "rank 2: "}) {
    EXPECT_THAT(lines(text, std::string(rank) + "all_reduce(count 5"), testing::SizeIs(1)) << text;
    EXPECT_EQ(table(text, rank).size(), 1u) << text;
  }
}

TEST(Explain, NothingIsSaidUnasked) {
  for (const char* value : {"", "0"}) {
    const Variable off("MUSTER_EXPLAIN", value);
    EXPECT_EQ(said([] { run_threads(2, [](Communicator& c, int) { sum(c, 5); }); }), "");
  }
}

TEST(Explain, OtherWordsAreRefused) {
  for (const char* value : {"yes", "2", "-1", "ALL"}) {
    const Variable set("MUSTER_EXPLAIN", value);
    for (const int n : {1, 2}) {
      const auto e = outcome_of([&] { Communicator::init_all(n); });
      EXPECT_EQ(e.code, Result::invalid_usage) << value;
      EXPECT_THAT(e.text, AllOf(HasSubstr("MUSTER_EXPLAIN='" + std::string(value) + "'"), HasSubstr("all"))) << value;
    }
  }
}

// Threads of one process see each other's memory, so that long calls go the other way.
TEST(Explain, CallsInWindowsAreMeasuredApart) {
  const Variable on("MUSTER_EXPLAIN", "1");
  const std::string text = said([] {
    run_threads(2, [](Communicator& c, int) {
      for (int i = 0; i < 4; ++i) sum(c, 1 << 16);
    });
  });
  EXPECT_THAT(text, HasSubstr(" us in mem_alloc's memory\n"));
  const std::vector<TableRow> rows = table(text);
  ASSERT_EQ(rows.size(), 1u) << text;
  EXPECT_EQ(rows[0].what, "all_reduce(count 65536, float32, sum) by window");
  EXPECT_EQ(rows[0].calls, 4);
}

TEST(Explain, UnevenAndEmptyCallsAreCounted) {
  const Variable on("MUSTER_EXPLAIN", "1");
  const std::string text = said([] {
    run_threads(2, [](Communicator& c, int rank) {
      const std::vector<size_t> counts = {1, 3};
      std::vector<float> in(4, 1), out(4);
      for (int i = 0; i < 2; ++i) c.all_gather_v(in.data(), counts[static_cast<size_t>(rank)], out.data(), counts, {}, DataType::float32);
      const std::vector<size_t> to = {1, static_cast<size_t>(rank + 1)}, from = {1, 1};
      const std::vector<size_t> back = rank == 0 ? from : std::vector<size_t>{1, 2};
      c.all_to_all_v(in.data(), to, {}, out.data(), back, {}, DataType::float32);
      sum(c, 0);
    });
  });
  const std::vector<TableRow> rows = table(text);
  ASSERT_EQ(rows.size(), 3u) << text;
  EXPECT_EQ(rows[0].what, "all_gather_v(counts 1 3, float32) by direct");
  EXPECT_EQ(rows[0].calls, 2);
  EXPECT_EQ(rows[1].what, "all_to_all_v(float32) of 2 elements on this rank by pairwise");
  EXPECT_THAT(rows[2].what, HasSubstr("all_reduce(count 0"));
}

TEST(Explain, TheChildOfASplitReportsForItself) {
  const Variable on("MUSTER_EXPLAIN", "1");
  const std::string text = said([] {
    run_threads(2, [](Communicator& c, int rank) {
      Communicator child = c.split(0, -rank, Config{.name = "child"});
      sum(child, 7);
    });
  });
  EXPECT_THAT(lines(text, "EXPLAIN child rank 0: "), testing::SizeIs(3)) << text;  // said, and a table of one row
}

TEST(Explain, RanksAsProcessesSayIt) {
  const Variable on("MUSTER_EXPLAIN", "1");
  run_processes(3, [](int rank) {
    const std::string text = said([&] {
      Communicator c = Communicator::from_environment();
      for (int i = 0; i < 10; ++i) sum(c, 100);
      c.destroy();
    });
    const std::vector<TableRow> rows = table(text);
    ASSERT_EQ(rows.size(), rank == 0 ? 1u : 0u) << text;
    if (rank == 0) {
      EXPECT_EQ(rows[0].calls, 10);
    } else {
      EXPECT_EQ(text, "");
    }
  });
}

// --- at the process's exit ---

TEST(ExplainDeathTest, ACommunicatorThatIsLeftOverReportsAtExit) {
  const Variable on("MUSTER_EXPLAIN", "1");
  const auto use_and_exit = [] {
    auto* const kept = new std::vector<Communicator>(Communicator::init_all(1, Config{.name = "kept"}));
    sum(kept->front(), 4);
    sum(kept->front(), 4);
    std::exit(0);
  };
  EXPECT_EXIT(use_and_exit(), testing::ExitedWithCode(0), "kept rank 0:         2 .* all_reduce\\(count 4, float32, sum\\) by direct");
}

TEST(ExplainDeathTest, AForkedChildLeavesItsParentsReportAlone) {
  const Variable on("MUSTER_EXPLAIN", "1");
  std::vector<Communicator> parents = Communicator::init_all(1, Config{.name = "parents"});
  sum(parents.front(), 4);
  EXPECT_EXIT(std::exit(0), testing::ExitedWithCode(0), Not(HasSubstr("parents")));
  const auto use_and_exit = [] {
    auto* const own = new std::vector<Communicator>(Communicator::init_all(1, Config{.name = "childs"}));
    sum(own->front(), 4);
    std::exit(0);
  };
  EXPECT_EXIT(use_and_exit(), testing::ExitedWithCode(0), AllOf(HasSubstr("childs rank 0:         1 "), Not(HasSubstr("parents"))));
  EXPECT_EQ(table(said([&] { parents.front().destroy(); })).size(), 1u);
}

// --- the report itself ---

TEST(CallDurations, MedianAndLeast) {
  CallDurations d;
  EXPECT_EQ(d.median(), 0);
  for (const double us : {5.0, 1.0, 9.0}) d.add(us);
  EXPECT_EQ(d.median(), 5);
  EXPECT_EQ(d.least(), 1);
  d.add(7);
  EXPECT_EQ(d.median(), 6);
  EXPECT_EQ(d.count(), 4u);
}

TEST(CallDurations, ALongJobsSampleIsFair) {
  CallDurations d;
  constexpr int kCalls = 200'000;  // rising times: a sample of the first or last ones alone would show it
  for (int i = 0; i < kCalls; ++i) d.add(1 + i);
  EXPECT_EQ(d.count(), static_cast<uint64_t>(kCalls));
  EXPECT_EQ(d.least(), 1);
  EXPECT_NEAR(d.median(), kCalls / 2, kCalls / 10);  // its standard deviation is 1/2 / sqrt(1024) = 1.6 % of the range
}

TEST(CallReport, DistinctCallsAreBounded) {
  const std::shared_ptr<CallReport> report = CallReport::make("many", 0);
  const std::string text = said([&] {
    for (size_t i = 0; i < CallReport::kMostRows; ++i) EXPECT_NE(report->row(std::to_string(i), "x", {"a", 1, {}}, {}), nullptr);
    EXPECT_EQ(report->row("one more", "x", {"a", 1, {}}, {}), nullptr);
    EXPECT_EQ(report->row("another", "x", {"a", 1, {}}, {}), nullptr);
    EXPECT_NE(report->row("7", "x", {"a", 1, {}}, {}), nullptr);
  });
  EXPECT_THAT(lines(text, "further ones aren't"), testing::SizeIs(1));
  EXPECT_EQ(said([&] { report->finish(); }), "");  // none was made
}

// The prices of host_price.h (host_price_test), by the profile if there is one.
TEST(Estimate, IsThePriceByTheConstantsAtHand) {
  PlanInputs in;
  in.nranks = in.cores = 4;
  in.slot_bytes = in.message_bytes = 32 << 10;
  in.cache_bytes = 32 << 20;
  const CallShape call{Coll::all_reduce, DataType::float32, RedOp::sum, 0, 12'000};
  const Algorithm& ring = *find_algorithm(Coll::all_reduce, "ring");
  EXPECT_EQ(estimate_us(ring, call, in), host_price(ring, call, in, Constants::built_in()).us);
  EXPECT_EQ(estimate_message_us(100, in), host_message_price(100, in, Constants::built_in()).us);
  CallShape nothing = call;
  nothing.count = 0;
  EXPECT_EQ(estimate_us(ring, nothing, in), Constants::built_in()("host.call"));
  auto slow = std::make_shared<Constants>(Constants::built_in());
  slow->override_with(Constants::read("host.hand_over 1000 us measured x", "test"), "test");
  in.tuned = slow;
  EXPECT_GT(estimate_us(ring, call, in), 6 * 1000);  // as many messages follow one another
  EXPECT_GT(estimate_message_us(100, in), 1000);
}

}  // namespace
}  // namespace muster
