// The *_perf programs from end to end: every way to have ranks, every kind of data, and what they say when
// data is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "perf/collective.h"
#include "support/outcome.h"
#include "support/perf.h"
#include "support/processes.h"

namespace muster::perf {
namespace {

using test::Output;
using test::rows_of;
using test::shell;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

void expect_right(const Output& o, size_t rows, int ranks) {
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("# Out of bounds values : 0 OK"));
  EXPECT_THAT(o.text, HasSubstr("#  Rank " + std::string(ranks > 10 ? "" : " ") +
                                  std::to_string(ranks - 1) + " Group"));
  const auto table = rows_of(o.text);
  EXPECT_EQ(table.size(), rows) << o.text;
  for (const auto& row : table) {
    ASSERT_EQ(row.size(), 13u) << o.text;
    EXPECT_EQ(row[8], "0");
    EXPECT_EQ(row[12], "0");
  }
}

TEST(AllReducePerf, RanksAsThreadsAndProcesses) {
  const std::string sizes = " -b 8 -e 1M -f 8 -n 4";
  expect_right(shell("all_reduce_perf" + sizes), 6, 1);
  expect_right(shell("all_reduce_perf -g 2" + sizes), 6, 2);
  expect_right(shell("all_reduce_perf -g 3 -y 1" + sizes), 6, 3);
  expect_right(shell("all_reduce_perf -t 2" + sizes), 6, 2);
  expect_right(shell("all_reduce_perf -t 2 -p 1" + sizes), 6, 2);
  expect_right(shell("all_reduce_perf -t 2 -g 2" + sizes), 6, 4);
  expect_right(shell("$muster run -n 2 all_reduce_perf" + sizes), 6, 2);
  expect_right(shell("$muster run -n 3 all_reduce_perf --buffers malloc" + sizes), 6, 3);
  expect_right(shell("$muster run -n 2 all_reduce_perf -t 2 -g 2" + sizes), 6, 8);
}

TEST(AllReducePerf, TypesOperatorsAndAwkwardSizes) {
  expect_right(shell("all_reduce_perf -t 3 -d all -o all -b 5 -e 3001 -i 2996 -n 1 --rotate 64K"), 12 * 6 * 2,
               3);
  expect_right(shell("$muster run -n 2 all_reduce_perf -d bfloat16 -o avg -b 0 -e 64K -f 16 -n 2 -u 3"), 5,
               2);
  expect_right(shell("all_reduce_perf -t 2 -b 1000001 -e 1000001 -d int8 -u 1 -n 2"), 1, 2);
}

TEST(AllReducePerf, FlagsThatShapeTheRun) {
  const std::string sizes = " -b 64 -e 4K -f 8 -n 5 --rotate 64K";
  for (const char* flags : {"-m 3", "-z 1", "-z 3", "-w 0", "-n 0", "-c 0", "-c 3", "-a 0", "-a 2", "-a 3",
                            "-C 1", "-T 60", "-x 1 -V 4 -G 2"})
    for (const char* ranks : {"-t 2 ", "-g 2 "}) {
      const Output o = shell("all_reduce_perf " + std::string(ranks) + flags + sizes);
      EXPECT_EQ(o.status, 0) << flags << o.text;
      EXPECT_EQ(rows_of(o.text).size(), 3u) << flags;
    }
  EXPECT_EQ(rows_of(shell("all_reduce_perf -t 2 -N 3" + sizes).text).size(), 9u);
  EXPECT_THAT(shell("all_reduce_perf -t 2 -c 0" + sizes).text, HasSubstr(" N/A"));
  EXPECT_THAT(shell("all_reduce_perf -t 2 -x 1" + sizes).text, HasSubstr("# Note: -x:"));
  EXPECT_THAT(shell("all_reduce_perf -t 2 -M 1" + sizes).text,
              ContainsRegex("# Host memory usage +: communicators"));
  EXPECT_THAT(shell("all_reduce_perf -t 2 -S 1" + sizes).text,
              ContainsRegex("  20[0-9][0-9]-[0-9]+-[0-9]+ [0-9:]+\n"));
  EXPECT_THAT(shell("all_reduce_perf -t 2 --plan" + sizes).text, ContainsRegex("\n#   [^ ]"));
  const auto iterations = rows_of(shell("all_reduce_perf -t 2 -I 1 -K 2" + sizes).text);
  ASSERT_EQ(iterations.size(), 3u);
  EXPECT_EQ(iterations[0].size(), 21u);
}

TEST(AllReducePerf, RegistersBuffers) {
  const std::string sizes = " -b 64 -e 1M -f 128 -n 3 --rotate 2M";
  for (const char* ranks : {"-t 3", "-g 3", "-g 2 -y 1", "-t 2 -g 2 -u 3"})
    for (const char* registered : {" -R 1", " -R 2"}) {
      const Output o = shell("all_reduce_perf " + std::string(ranks) + registered + sizes);
      EXPECT_EQ(o.status, 0) << ranks << registered << o.text;
      EXPECT_EQ(rows_of(o.text).size(), 3u) << ranks << registered << o.text;
    }
  expect_right(shell("$muster run -n 3 all_reduce_perf -R 2 -p 1 -t 2" + sizes), 3, 6);
  expect_right(shell("$muster run -n 2 all_reduce_perf -R 1 --buffers malloc" + sizes), 3, 2);
  EXPECT_THAT(shell("all_reduce_perf -t 2 -R 1" + sizes).text, HasSubstr("# Note: -R 1: "));
  // Processes can only register what the others map, and from 8 KiB on it is then used where it is.
  EXPECT_THAT(shell("$muster run -n 2 all_reduce_perf -R 2 --plan" + sizes).text,
              AllOf(HasSubstr("mem_alloc, registered as windows;"), HasSubstr("from mem_alloc: window (")));
}

// What can't be a window fails on all ranks, with the reason.
TEST(AllReducePerf, BuffersThatCannotBeWindows) {
  const Output o = shell("$muster run -n 2 all_reduce_perf -R 2 --buffers malloc -b 1K -e 1K --rotate 64K");
  EXPECT_NE(o.status, 0);
  EXPECT_THAT(o.text, HasSubstr("are not in one allocation of mem_alloc"));
  EXPECT_EQ(shell("MUSTER_WINDOWS=0 $muster run -n 2 all_reduce_perf -R 2 -b 1K -e 1K --rotate 64K").status, 6);
}

// No interface with an address at all, and only the loopback one: ranks of one host need none.
TEST(AllReducePerf, WithoutIpInterfaces) {
  if (shell("unshare -rn true").status != 0) GTEST_SKIP() << "network namespaces aren't permitted";
  const std::string run = "$muster run -n 2 all_reduce_perf -b 8 -e 1M -f 64 -n 2 --rotate 64K";
  expect_right(shell("unshare -rn " + run), 3, 2);
  if (shell("unshare -rn ip link set lo up").status != 0) GTEST_SKIP() << "no ip command";
  expect_right(shell("export muster; unshare -rn sh -c 'ip link set lo up && exec " + run + "'"), 3, 2);
}

TEST(AllReducePerf, SplitsIntoJobs) {
  const std::string run = " $muster run -n 4 all_reduce_perf -b 8 -e 64 -f 8 -n 2";
  for (const std::string split : {"NCCL_TESTS_SPLIT='MOD 2'", "NCCL_TESTS_SPLIT=%2",
                                  "NCCL_TESTS_SPLIT='AND 0x1'", "NCCL_TESTS_SPLIT_MASK=1"}) {
    const Output o = shell(split + run);
    expect_right(o, 2, 4);
    for (const char* line :
         {"#  Rank  0 Group  0 ", "#  Rank  1 Group  1 ", "#  Rank  2 Group  0 ", "#  Rank  3 Group  1 "})
      EXPECT_THAT(o.text, HasSubstr(line)) << split;
    EXPECT_THAT(o.text, HasSubstr("# Collective test concluded: all_reduce_perf"));
  }
  expect_right(shell("NCCL_TESTS_SPLIT='DIV 3'" + run), 2, 4);    // three and one
  expect_right(shell("NCCL_TESTS_SPLIT='OR 0b11'" + run), 2, 4);  // all in one
  expect_right(shell("NCCL_TESTS_SPLIT=%2" + run + " -t 2"), 2, 8);
  EXPECT_EQ(shell("NCCL_TESTS_SPLIT='XOR 1'" + run).status, 6);
}

TEST(AllReducePerf, ExitStatuses) {
  EXPECT_EQ(shell("all_reduce_perf -b 8X").status, 255);
  EXPECT_EQ(shell("all_reduce_perf --what").status, 0);
  EXPECT_EQ(shell("all_reduce_perf -D 1").status, 5);
  EXPECT_EQ(shell("NCCL_TESTS_MIN_BW=1e9 all_reduce_perf -t 2 -b 8 -e 8").status, 7);
  EXPECT_EQ(shell("NCCL_TESTS_MIN_BW=0 all_reduce_perf -t 2 -b 8 -e 8").status, 0);
  EXPECT_EQ(shell("NCCL_TESTS_MIN_BW=fast all_reduce_perf -t 2 -b 8 -e 8").status, 6);
  EXPECT_EQ(shell("NCCL_TESTS_MIN_BW=nan all_reduce_perf -t 2 -b 8 -e 8").status, 6);
  EXPECT_EQ(shell("RANK=5 WORLD_SIZE=2 all_reduce_perf -b 8 -e 8").status, 6);
}

TEST(AllReducePerf, ARowOverItsTimeEndsTheRun) {
  // Rank 1 is stopped in the middle: rank 0 waits for it no longer than it may.
  const Output o = shell(
      "dir=$(mktemp -d); export dir; "
      "$muster run -n 2 --grace 0.5 sh -c 'echo $$ > $dir/$RANK; exec all_reduce_perf -b 8 -e 8 -n 1 -N 0 "
      "--rotate 64K -T 3 > "
      "$dir/out.$RANK' & job=$!; "
      "until grep -q float $dir/out.0 2>/dev/null || ! kill -0 $job; do sleep 0.05; done; kill -STOP $(cat "
      "$dir/1); wait $job; "
      "echo status $?; rm -r $dir");
  EXPECT_THAT(o.text,
              AllOf(HasSubstr("not done after 3 s (-T)"), HasSubstr("rank 0 (pid "), HasSubstr("status 4")));
}

TEST(AllReducePerf, WritesJson) {
  const std::string path = testing::TempDir() + "/perf_test_" + std::to_string(getpid()) + ".json";
  const Output o = shell("MUSTER_JOB_KEY=secret all_reduce_perf -t 2 -b 8 -e 64 -f 8 -n 4 -I 1 -J " + path);
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("# Writing JSON output to " + path + "\n"));
  std::ifstream in(path);
  const auto j = nlohmann::json::parse(in);
  EXPECT_EQ(j["version"], 3);
  EXPECT_EQ(j["config"]["nthreads"], 2);
  EXPECT_EQ(j["config"]["step_factor"], 8);
  EXPECT_EQ(j["config"]["devices"].size(), 2u);
  ASSERT_EQ(j["results"].size(), 2u);
  EXPECT_EQ(j["results"][1]["size"], 64);
  EXPECT_EQ(j["results"][1]["type"], "float");
  EXPECT_EQ(j["results"][1]["out_of_place"]["nwrong"], 0);
  EXPECT_GT(j["results"][1]["in_place"]["time"], 0);
  EXPECT_EQ(j["results"][1]["in_place_per_iter"]["times_us"].size(), 4u);
  EXPECT_EQ(j["out_of_bounds"]["okay"], "true");
  EXPECT_EQ(j["average_bus_bandwidth"]["okay"], "unchecked");
  for (const auto& entry : j["env"]) EXPECT_EQ(entry.get<std::string>().find("secret"), std::string::npos);
  EXPECT_THAT(shell("all_reduce_perf -b 8 -e 8 -J " + path).text, HasSubstr(path + ".0\n"))
      << "an existing file is kept";
  std::remove(path.c_str());
  std::remove((path + ".0").c_str());
}

// An all-reduce that does one thing wrong.
template <void (*spoil)(int rank, const Call&)>
int run_spoiled(std::string& output, const char* threads = "2") {
  const Collective c{
      .name = "all_reduce",
      .traffic = Traffic::all_reduce,
      .planned_as = "all_reduce",
      .reduces = true,
      .layout =
          [](size_t bytes, size_t element, int, int) {
            return Layout{.count = bytes / element, .send = bytes / element, .recv = bytes / element};
          },
      .sent = [](const Layout& l, const Place& p) { return Contents{{.source = p.rank, .count = l.count}}; },
      .expected = [](const Layout& l,
                     const Place&) { return Contents{{.source = Content::kReduced, .count = l.count}}; },
      .call =
          [](Communicator& communicator, const Call& call) {
            communicator.all_reduce(call.send, call.recv, call.count, call.type, call.op, call.stream);
            spoil(communicator.rank(), call);
          }};
  std::vector<std::string> words = {"x_perf", "-t", threads, "-b", "64", "-e", "64", "-n", "1"};
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  testing::internal::CaptureStdout();
  const int status = run_perf(static_cast<int>(argv.size()), argv.data(), c);
  output = testing::internal::GetCapturedStdout();
  return status;
}

void do_nothing(int, const Call&) {}
void flip_a_bit(int rank, const Call& c) {
  if (rank == 1) static_cast<char*>(c.recv)[4 * (c.count - 1)] ^= 1;
}
void write_behind(int rank, const Call& c) {
  if (rank == 1) static_cast<char*>(c.recv)[4 * c.count] ^= 1;
}
void write_before(int rank, const Call& c) {
  if (rank == 0) static_cast<char*>(c.recv)[-1] ^= 1;
}
void change_what_was_sent(int rank, const Call& c) {
  if (rank == 0 && c.send != c.recv) static_cast<char*>(const_cast<void*>(c.send))[0] ^= 1;
}
void die(int rank, const Call&) {
  if (rank == 0) throw Error(Result::internal_error, "as it should");
}

TEST(Perf, WrongDataIsNoticedOnEveryRank) {
  std::string output;
  EXPECT_EQ(run_spoiled<do_nothing>(output), 0) << output;
  EXPECT_EQ(run_spoiled<flip_a_bit>(output), 7);
  EXPECT_THAT(output, HasSubstr("Out of bounds values : 2 FAILED"));
  EXPECT_EQ(run_spoiled<write_behind>(output), 7);
  EXPECT_EQ(run_spoiled<write_before>(output), 7);
  EXPECT_EQ(run_spoiled<change_what_was_sent>(output), 7);
  EXPECT_THAT(output, HasSubstr("Out of bounds values : 1 FAILED"));
}

void flip_a_bit_in_process_3(int, const Call& c) {
  if (std::string_view(std::getenv("RANK")) == "3") static_cast<char*>(c.recv)[0] ^= 1;
}

TEST(Perf, WrongDataOfAnotherJobIsNoticed) {
  const test::Variable split("NCCL_TESTS_SPLIT", "DIV 2");
  test::run_processes(4, [](int rank) {
    std::string output;
    EXPECT_EQ(run_spoiled<flip_a_bit_in_process_3>(output, "1"), 7);
    if (rank == 0) {
      EXPECT_THAT(output, HasSubstr("Out of bounds values : 2 FAILED"));
    }
  });
}

TEST(Perf, AFailureEndsAllThreads) {
  std::string output;
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_spoiled<die>(output), 3);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("internal error"), HasSubstr("as it should")));
}

}  // namespace
}  // namespace muster::perf
