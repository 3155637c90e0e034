// Each of the *_perf programs: what it prints, that its results are right in every way to have ranks, and
// that wrong ones are noticed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/perf.h"

// The programs' own descriptions, each with its main under another name.
#define main all_gather_main
#include "all_gather_perf.cpp"
#undef main
#define main all_reduce_main
#include "all_reduce_perf.cpp"
#undef main
#define main alltoall_main
#include "alltoall_perf.cpp"
#undef main
#define main alltoallv_main
#include "alltoallv_perf.cpp"
#undef main
#define main broadcast_main
#include "broadcast_perf.cpp"
#undef main
#define main gather_main
#include "gather_perf.cpp"
#undef main
#define main hypercube_main
#include "hypercube_perf.cpp"
#undef main
#define main reduce_main
#include "reduce_perf.cpp"
#undef main
#define main reduce_scatter_main
#include "reduce_scatter_perf.cpp"
#undef main
#define main scatter_main
#include "scatter_perf.cpp"
#undef main
#define main sendrecv_main
#include "sendrecv_perf.cpp"
#undef main

namespace muster::perf {
namespace {

using test::Output;
using test::rows_of;
using test::shell;
using testing::HasSubstr;

// A row of 100000 bytes of floats, by hand. A share is 25000 / n elements, in whole 16 bytes: 12500, 8332,
// 6248, 3124.
struct ByHand {
  int ranks;
  size_t size, count;
  double algorithm_bytes, bus_per_algorithm;
};
const std::vector<ByHand> kAllReduce = {
    {2, 100000, 25000, 100000, 1}, {3, 100000, 25000, 100000, 4.0 / 3}, {8, 100000, 25000, 100000, 1.75}};
const std::vector<ByHand> kShare = {
    {2, 100000, 12500, 100000, 0.5}, {3, 99984, 8332, 99984, 2.0 / 3}, {8, 99968, 3124, 99968, 0.875}};
const std::vector<ByHand> kWhole = {
    {2, 100000, 25000, 100000, 1}, {3, 100000, 25000, 100000, 1}, {8, 100000, 25000, 100000, 1}};
const std::vector<ByHand> kHypercube = {
    {2, 100000, 12500, 50000, 1}, {4, 99968, 6248, 74976, 1}, {8, 99968, 3124, 87472, 1}};
// 1/28 to 7/28 of 99968 bytes, each in whole 16 bytes: 3568 + 7136 + 10704 + 14272 + 17840 + 21408 + 24992.
const std::vector<ByHand> kAllToAllV = {
    {2, 100000, 12500, 100000, 0.5}, {3, 99984, 8332, 99984, 2.0 / 3}, {8, 99920, 3124, 99920, 0.875}};

struct Program {
  Collective (*collective)();
  const std::vector<ByHand>& by_hand;
  double read_mib, written_mib;  // by hand, among 2 ranks for 1 MiB of floats

  std::string name() const { return collective().name; }
  int ranks() const { return collective == hypercube ? 4 : 3; }
};
std::ostream& operator<<(std::ostream& out, const Program& p) { return out << p.name(); }

const Program kPrograms[] = {
    {all_reduce, kAllReduce, 2, 2}, {all_gather, kShare, 1, 2},    {broadcast, kWhole, 1, 2},
    {reduce_scatter, kShare, 2, 1}, {reduce, kWhole, 2, 1},        {alltoall, kShare, 2, 2},
    {alltoallv, kAllToAllV, 2, 2},  {scatter, kShare, 1, 1},       {gather, kShare, 1, 1},
    {sendrecv, kWhole, 2, 2},       {hypercube, kHypercube, 1, 2},
};

class PerfProgram : public testing::TestWithParam<Program> {
 protected:
  Collective collective() const { return GetParam().collective(); }
  std::string program() const { return GetParam().name() + "_perf"; }
  // Small buffers: most of a short run's time would go into filling large ones.
  std::string run() const { return program() + " --rotate 256K"; }
  bool takes(int ranks) const { return GetParam().collective != hypercube || (ranks & (ranks - 1)) == 0; }

  // Status 0, so many rows, all verified and right.
  void expect_right(const std::string& command, size_t rows) {
    const Output o = shell(command);
    EXPECT_EQ(o.status, 0) << command << "\n" << o.text;
    EXPECT_THAT(o.text, HasSubstr("# Out of bounds values : 0 OK\n"));
    const auto table = rows_of(o.text);
    EXPECT_EQ(table.size(), rows) << command << "\n" << o.text;
    for (const auto& row : table) {
      ASSERT_EQ(row.size(), 13u) << command << "\n" << o.text;
      EXPECT_EQ(row[8], "0") << command;
      EXPECT_EQ(row[12], collective().in_place ? "0" : "N/A") << command;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(All, PerfProgram, testing::ValuesIn(kPrograms),
                         [](const auto& i) { return i.param.name(); });

TEST_P(PerfProgram, RanksAsThreads) {
  const std::string sizes = " -b 1 -e 70001 -i 34999 -n 2";
  for (const int n : {1, 2, 3, 4, 5})
    if (takes(n)) expect_right(run() + " -t " + std::to_string(n) + sizes, 3);
  expect_right(run() + " -g 4" + sizes, 3);
  expect_right(run() + " -g 4 -y 1 -m 3" + sizes, 3);
  expect_right(run() + " -t 2 -g 2 -m 2 -u 1 -d double" + sizes, 3);
}

TEST_P(PerfProgram, RanksAsProcesses) {
  for (const int n : {1, 2, 3, 4})
    if (takes(n))
      expect_right("$muster run -n " + std::to_string(n) + " " + run() + " -b 3 -e 300003 -i 100000 -n 2", 4);
  expect_right("$muster run -n 2 " + run() + " -t 2 --buffers malloc -b 0 -e 1M -f 512 -n 2", 3);
}

TEST_P(PerfProgram, TypesAndOperators) {
  expect_right(run() + " -t " + std::to_string(GetParam().ranks()) + " -d all -o all -b 999 -e 999 -n 1 -w 0",
               collective().reduces ? 12 * 6 : 12);
}

TEST_P(PerfProgram, EachRankAsRoot) {
  const std::string with_root = run() + " -t 4 -b 1000 -e 9000 -i 8000 -n 1 -r ";
  const Output o = shell(with_root + "-1");
  EXPECT_EQ(o.status, 0) << o.text;
  std::vector<std::string> roots;
  for (const auto& row : rows_of(o.text)) roots.push_back(row[4]);
  if (collective().rooted)
    EXPECT_EQ(roots, (std::vector<std::string>{"0", "0", "1", "1", "2", "2", "3", "3"}));
  else
    EXPECT_EQ(roots, (std::vector<std::string>{"-1", "-1"}));
  expect_right(with_root + "-1", roots.size());
  if (collective().rooted) {
    expect_right(with_root + "3", 2);
    EXPECT_EQ(shell(with_root + "4").status, 6);
  }
}

TEST_P(PerfProgram, HeaderAndColumns) {
  const Output o = shell(run() + " -t 2 -b 64 -e 64 -n 1 --plan");
  EXPECT_THAT(o.text, HasSubstr("# Collective test starting: " + program() + "\n"));
  EXPECT_THAT(o.text, HasSubstr("# Collective test concluded: " + program() + "\n"));
  EXPECT_THAT(
      o.text,
      HasSubstr("#       size         count      type   redop    root     time   algbw   busbw  #wrong     "
                "time   algbw   busbw  #wrong\n"));
  EXPECT_THAT(o.text, HasSubstr("# Avg bus bandwidth    : "));
  EXPECT_THAT(o.text, testing::ContainsRegex("\n#   [a-z]")) << "--plan";
  const auto rows = rows_of(o.text);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0][0], "64");
  EXPECT_EQ(rows[0][2], "float");
  EXPECT_EQ(rows[0][3], collective().reduces ? "sum" : "none");
}

// The JSON file of a run.
nlohmann::json json_of(const std::string& command) {
  const std::string path = testing::TempDir() + "/perf_programs_" + std::to_string(getpid()) + ".json";
  std::remove(path.c_str());
  const Output o = shell(command + " -J " + path);
  EXPECT_EQ(o.status, 0) << o.text;
  std::ifstream in(path);
  const auto j = nlohmann::json::parse(in);
  std::remove(path.c_str());
  return j;
}

TEST_P(PerfProgram, BandwidthsAreThoseComputedByHand) {
  for (const ByHand& b : GetParam().by_hand) {
    SCOPED_TRACE(b.ranks);
    const auto row =
        json_of(run() + " -t " + std::to_string(b.ranks) + " -b 100000 -e 100000 -n 3")["results"][0];
    EXPECT_EQ(row["size"], b.size);
    EXPECT_EQ(row["count"], b.count);
    for (const char* half : {"out_of_place", "in_place"}) {
      const double time = row[half]["time"], algorithm = row[half]["alg_bw"], bus = row[half]["bus_bw"];
      EXPECT_NEAR(algorithm * time * 1e3 / b.algorithm_bytes, 1, 1e-9) << half;
      EXPECT_NEAR(bus / algorithm, b.bus_per_algorithm, 1e-9) << half;
    }
  }
}

TEST_P(PerfProgram, SaysHowCloseToTheRoof) {
  const Program& p = GetParam();
  const std::string roofed = program() + " -t 2 -b 1M -e 1M -n 64";
  const auto row = json_of(roofed)["results"][0];
  EXPECT_EQ(row["roof"]["read_bytes"].get<double>() / (1 << 20), p.read_mib);
  EXPECT_EQ(row["roof"]["written_bytes"].get<double>() / (1 << 20), p.written_mib);
  EXPECT_GT(row["roof"]["time"], 0);
  EXPECT_THAT(
      shell(roofed).text,
      testing::ContainsRegex("\n# Roof: best at [0-9]+ B: busbw [0-9.]+ of [0-9.]+ GB/s, [0-9]+ % of what"));
}

// What a program does when the library does something wrong.
struct Verdict {
  int status = -1;
  std::string output;
};
Verdict run_spoiled(const Collective& spoiled, int ranks) {
  std::vector<std::string> words = {"x_perf", "-t", std::to_string(ranks), "-b", "960", "-e", "960",
                                    "-n",     "1"};
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  testing::internal::CaptureStdout();
  const int status = run_perf(static_cast<int>(argv.size()), argv.data(), spoiled);
  return {status, testing::internal::GetCapturedStdout()};
}

TEST_P(PerfProgram, WrongDataIsNoticedOnEveryRank) {
  const int n = GetParam().ranks();
  EXPECT_EQ(run_spoiled(collective(), n).status, 0);
  for (int victim = 0; victim < n; ++victim) {
    Collective c = collective();
    const auto call = c.call;
    const int last_round = c.rounds(n) - 1;
    c.call = [&](Communicator& communicator, const Call& a) {
      call(communicator, a);
      if (communicator.rank() == victim && a.round == last_round) static_cast<char*>(a.recv)[0] ^= 1;
    };
    const Verdict v = run_spoiled(c, n);
    EXPECT_EQ(v.status, 7) << victim;
    EXPECT_THAT(v.output,
                HasSubstr("# Out of bounds values : " + std::string(c.in_place ? "2" : "1") + " FAILED\n"))
        << victim;
  }
}

TEST_P(PerfProgram, AnotherRootIsNoticed) {
  if (!collective().rooted) GTEST_SKIP() << "no root";
  Collective c = collective();
  const auto call = c.call;
  c.call = [&](Communicator& communicator, const Call& a) {
    Call other = a;
    other.root = 1;
    call(communicator, other);
  };
  EXPECT_EQ(run_spoiled(c, 3).status, 7);
}

TEST(PerfPrograms, RoofCanBeSwitchedOffAndIsNotForSmallOrShortRuns) {
  for (const char* flags : {"-b 1M -e 1M -n 64 --roof 0", "-b 1M -e 1M -n 64 --rotate 0", "-b 1K -e 1K -n 64",
                            "-b 64M -e 64M -n 2", "-b 1M -e 1M -n 64 -C 1"}) {
    const Output o = shell("all_reduce_perf -t 2 " + std::string(flags));
    EXPECT_EQ(o.status, 0);
    EXPECT_EQ(o.text.find("# Roof"), std::string::npos) << flags << o.text;
  }
}

TEST(PerfPrograms, HypercubeSkipsOtherNumbersOfRanks) {
  const Output o = shell("hypercube_perf -t 3 -b 64 -e 64");
  EXPECT_EQ(o.status, 0) << "as nccl-tests: scripts run all programs with all numbers of ranks";
  EXPECT_THAT(o.text,
              HasSubstr("# Nothing is measured: a hypercube needs 1, 2, 4, 8 ... ranks, and there are 3\n"));
  EXPECT_EQ(rows_of(o.text).size(), 0u);
  EXPECT_EQ(shell("NCCL_TESTS_MIN_BW=1 hypercube_perf -t 3 -b 64 -e 64").status, 7)
      << "no bandwidth was shown";
}

}  // namespace
}  // namespace muster::perf
