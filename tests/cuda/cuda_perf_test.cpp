// The *_perf programs on simulated GPUs: every way to have ranks there, what they call, and that wrong data
// is noticed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "perf/collective.h"
#include "support/perf.h"

namespace muster::perf {
namespace {

using test::Output;
using test::rows_of;
using test::shell;
using testing::AllOf;
using testing::HasSubstr;

// Status 0, so many rows, all verified and right, on GPU memory.
void expect_right(const std::string& command, size_t rows) {
  const Output o = shell(command);
  EXPECT_EQ(o.status, 0) << command << "\n" << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("# Memory: GPU"), HasSubstr("# Out of bounds values : 0 OK\n")))
      << command;
  const auto table = rows_of(o.text);
  EXPECT_EQ(table.size(), rows) << command << "\n" << o.text;
  for (const auto& row : table) {
    ASSERT_EQ(row.size(), 13u) << command << "\n" << o.text;
    EXPECT_EQ(row[8], "0") << command;
    EXPECT_THAT(row[12], testing::AnyOf("0", "N/A")) << command;
  }
}

class GpuPerfProgram : public testing::TestWithParam<const char*> {
 protected:
  std::string program() const { return GetParam() + std::string("_perf"); }
  bool reduces() const { return program().find("reduce") != std::string::npos; }
  // A hypercube has 2, 4 ...
  std::string three() const { return program() == "hypercube_perf" ? "4" : "3"; }
};
INSTANTIATE_TEST_SUITE_P(All, GpuPerfProgram,
                         testing::Values("all_gather", "all_reduce", "alltoall", "alltoallv", "broadcast",
                                         "gather", "hypercube", "reduce", "reduce_scatter", "scatter",
                                         "sendrecv"),
                         [](const auto& i) { return std::string(i.param); });

const std::string kSizes = " -b 1 -e 70001 -i 34999 -n 2";

TEST_P(GpuPerfProgram, RanksOfOneThreadOfThreadsAndOfProcesses) {
  expect_right(program() + " -g " + three() + kSizes, 3);
  expect_right(program() + " -t " + three() + " -m 2" + kSizes, 3);
  expect_right(program() + " -t 2 -g 2 -u 1 -d double" + kSizes, 3);
  expect_right("$muster run -n 2 " + program() + " -g 2 -p 1" + kSizes, 3);
}

TEST_P(GpuPerfProgram, GraphsAndRegisteredBuffers) {
  expect_right(program() + " -g " + three() + " -G 2 -m 2" + kSizes, 3);
  expect_right(program() + " -t 2 -G 1 -w 0" + kSizes, 3);
  expect_right(program() + " -g 2 -R 1" + kSizes, 3);
  expect_right(program() + " -t 2 -R 2" + kSizes, 3);
}

TEST_P(GpuPerfProgram, TypesAndOperators) {
  expect_right(program() + " -g 2 -d all -o all -b 999 -e 999 -n 1 -w 0", reduces() ? 12 * 6 : 12);
}

TEST(GpuPerf, DevicesAreNccltests) {
  const std::string row = " -b 8 -e 8 -n 1";
  EXPECT_THAT(shell("all_reduce_perf -g 4" + row).text, AllOf(HasSubstr(" device  0 [0000:10:00] cuda_sim"),
                                                              HasSubstr(" device  3 [0000:13:00] cuda_sim")));
  EXPECT_THAT(shell("$muster run -n 2 all_reduce_perf -t 2" + row).text,
              AllOf(HasSubstr("#  Rank  2 Group  0"), HasSubstr(" device  3 [")));
  EXPECT_THAT(
      shell("NCCL_TESTS_DEVICE=2 all_reduce_perf -g 2" + row).text,
      AllOf(HasSubstr(" device  2 ["), HasSubstr(" device  3 ["), testing::Not(HasSubstr(" device  0 ["))));
  EXPECT_EQ(shell("NCCL_TESTS_DEVICE=first all_reduce_perf -g 2" + row).status, 6);
  // Ranks share GPUs where there are fewer; then one default stream can't be theirs.
  expect_right("CUDASIM_DEVICES=2 all_reduce_perf -g 3" + row, 1);
  EXPECT_EQ(shell("CUDASIM_DEVICES=2 all_reduce_perf -g 3 -y 1" + row).status, 6);
  expect_right("all_reduce_perf -g 3 -y 1" + row, 1);
}

TEST(GpuPerf, HostMemoryIfItIsWantedOrThereIsNoGpu) {
  const std::string row = " -t 2 -b 8 -e 8 -n 1 --rotate 64K";
  EXPECT_THAT(shell("all_reduce_perf --buffers malloc" + row).text,
              AllOf(HasSubstr("# Memory: malloc"), HasSubstr("[host]"), HasSubstr("values : 0 OK")));
  EXPECT_THAT(shell("all_reduce_perf --buffers alloc" + row).text, HasSubstr("# Memory: muster::mem_alloc"));
  EXPECT_THAT(shell("CUDA_VISIBLE_DEVICES= all_reduce_perf" + row).text,
              HasSubstr("# Memory: muster::mem_alloc"));
  const Output none = shell("CUDA_VISIBLE_DEVICES= all_reduce_perf --buffers gpu" + row);
  EXPECT_EQ(none.status, 6);
  EXPECT_THAT(none.text, HasSubstr("--buffers gpu: the CUDA runtime finds no GPU"));
  const Output mixed =
      shell("$muster run -n 2 sh -c '[ $RANK = 0 ] || export CUDA_VISIBLE_DEVICES=; exec all_reduce_perf" +
            row + "'");
  EXPECT_EQ(mixed.status, 6);
  EXPECT_THAT(mixed.text, HasSubstr("--buffers says which memory is meant"));
}

TEST(GpuPerf, FlagsThatShapeTheRun) {
  const std::string sizes = " -g 2 -b 64 -e 4K -f 8 -n 5";
  for (const char* flags : {"-z 1", "-z 3", "-n 0", "-c 0", "-c 3", "-C 1", "-T 60", "-x 1", "-N 2",
                            "-I 1 -K 2", "-o mulsum", "--rotate 1M", "-I 1 -z 3 -G 2"}) {
    const Output o = shell("all_reduce_perf " + std::string(flags) + sizes);
    EXPECT_EQ(o.status, 0) << flags << o.text;
    EXPECT_EQ(rows_of(o.text).size(), flags == std::string("-N 2") ? 6u : 3u) << flags << o.text;
  }
  EXPECT_THAT(shell("all_reduce_perf -G 2 -I 1" + sizes).text,
              AllOf(HasSubstr(" graph: 2 "), HasSubstr("# Note: -I: ")));
  EXPECT_EQ(shell("all_reduce_perf -G 1 -y 1" + sizes).status, 6);
}

// Rank 1 is stopped in the middle: rank 0, whose kernel waits for it, ends no later than it may.
TEST(GpuPerf, ARowOverItsTimeEndsTheRun) {
  const Output o = shell(
      "dir=$(mktemp -d); export dir; "
      "$muster run -n 2 --grace 0.5 sh -c 'echo $$ > $dir/$RANK; exec all_reduce_perf -b 8 -e 8 -n 1 -N 0 -T "
      "5 > $dir/out.$RANK' & "
      "job=$!; until grep -q float $dir/out.0 2>/dev/null || ! kill -0 $job; do sleep 0.05; done; kill -STOP "
      "$(cat $dir/1); "
      "wait $job; echo status $?; rm -r $dir");
  EXPECT_THAT(o.text, AllOf(HasSubstr("not done after 5 s (-T)"), HasSubstr("status 4")));
}

// An all-reduce behind which something goes wrong in the memory of one GPU.
int run_spoiled(const std::function<void(GpuRank&, const Call&)>& spoil, std::string& output) {
  Collective c = {.name = "all_reduce",
                  .traffic = Traffic::all_reduce,
                  .reduces = true,
                  .layout = whole_buffers,
                  .sent = own_elements,
                  .expected = [](const Layout& l, const Place&) {
                    return Contents{{.source = Content::kReduced, .count = l.count}};
                  }};
  c.gpu_call = [&](GpuRank& rank, const Call& call) {
    rank.all_reduce(call.send, call.recv, call.count, call.type, call.op);
    if (rank.rank() != 1) return;
    rank.synchronize();
    spoil(rank, call);
  };
  std::vector<std::string> words = {"x_perf", "-t", "2", "-b", "64", "-e", "64", "-n", "1"};
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  testing::internal::CaptureStdout();
  const int status = run_perf(static_cast<int>(argv.size()), argv.data(), c);
  output = testing::internal::GetCapturedStdout();
  return status;
}

TEST(GpuPerf, WrongDataIsNoticed) {
  const auto byte = [](const void* buffer, ptrdiff_t offset) {
    return static_cast<char*>(const_cast<void*>(buffer)) + offset;
  };
  std::string output;
  EXPECT_EQ(run_spoiled([](GpuRank&, const Call&) {}, output), 0) << output;
  EXPECT_EQ(run_spoiled([&](GpuRank& r, const Call& c) { r.fill(byte(c.recv, 63), 1, 1); }, output), 7);
  EXPECT_THAT(output, HasSubstr("Out of bounds values : 2 FAILED"));
  EXPECT_EQ(run_spoiled([&](GpuRank& r, const Call& c) { r.fill(byte(c.recv, 64), 1, 1); }, output), 7);
  EXPECT_EQ(run_spoiled([&](GpuRank& r, const Call& c) { r.fill(byte(c.recv, -1), 1, 1); }, output), 7);
  EXPECT_EQ(run_spoiled(
                [&](GpuRank& r, const Call& c) {
                  if (c.send != c.recv) r.fill(byte(c.send, 0), 1, 1);
                },
                output),
            7);
  EXPECT_THAT(output, HasSubstr("Out of bounds values : 1 FAILED"));
}

}  // namespace
}  // namespace muster::perf
