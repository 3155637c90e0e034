// Who sends how much to whom in alltoallv_perf.
#include "perf/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <optional>

#include "support/outcome.h"
#include "support/perf.h"

namespace muster::perf {
namespace {

using test::Output;
using test::shell;
using test::Variable;
using testing::AllOf;
using testing::HasSubstr;

std::vector<size_t> sent_by(const Pattern& p, int rank, int nranks, size_t total) {
  std::vector<size_t> sent;
  for (int to = 0; to < nranks; ++to) sent.push_back(p.bytes(rank, to, nranks, total));
  return sent;
}

class PerfPattern : public testing::Test {
 protected:
  ~PerfPattern() override { std::remove(path_.c_str()); }

  const std::string& file(const std::string& content) {
    std::ofstream(path_) << content;
    return path_;
  }
  test::Outcome outcome_of_matrix(const std::string& content) {
    const Variable v("NCCL_TESTS_ALLTOALLV_MATRIX_FILE", file(content));
    return test::outcome_of([] { Pattern::from_environment(); });
  }

  const std::string path_ = testing::TempDir() + "/perf_pattern_" + std::to_string(getpid());
};

TEST_F(PerfPattern, SpreadByDistance) {
  const auto pattern = [](const std::optional<std::string>& spread) {
    const Variable v("NCCL_TESTS_ALLTOALLV_SPREAD", spread);
    return Pattern::from_environment();
  };
  // 9600 bytes: distances 0, 1, 2, 3 of 6 in all.
  EXPECT_EQ(sent_by(pattern({}), 0, 4, 9600), (std::vector<size_t>{0, 1600, 3200, 4800}));
  EXPECT_EQ(sent_by(pattern("1"), 3, 4, 9600), (std::vector<size_t>{1600, 3200, 4800, 0}));
  EXPECT_EQ(sent_by(pattern("0"), 1, 4, 9600), (std::vector<size_t>{2400, 2400, 2400, 2400}));
  EXPECT_EQ(sent_by(pattern("0.5"), 0, 4, 9600), (std::vector<size_t>{1200, 2000, 2800, 3600}));
  EXPECT_EQ(sent_by(pattern("1"), 0, 4, 1000), (std::vector<size_t>{0, 160, 320, 496})) << "whole 16 bytes";
  EXPECT_EQ(sent_by(pattern("1"), 0, 1, 100), (std::vector<size_t>{96})) << "there is nobody else";
  for (const char* bad : {"-0.1", "1.1", "much", "0.5x", "nan"}) EXPECT_THROW(pattern(bad), Error) << bad;
}

TEST_F(PerfPattern, LayoutOfAMatrix) {
  const Variable name("NCCL_TESTS_ALLTOALLV_MATRIX_FILE",
                      file("16 32  64 1e3\n\n 0 160 17 5\n  32 0 48 5\n 1 1 1 1\n"));
  const Variable scale("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE", "2");
  const Pattern p = Pattern::from_environment();  // for up to 4 ranks: doubled, in whole 16 bytes
  EXPECT_EQ(sent_by(p, 0, 3, 0), (std::vector<size_t>{32, 64, 128}));
  EXPECT_EQ(sent_by(p, 1, 3, 0), (std::vector<size_t>{0, 320, 32}));
  EXPECT_EQ(sent_by(p, 2, 3, 0), (std::vector<size_t>{64, 0, 96}));
  const Layout l = p.layout(0, 4, 2, 3);  // floats of rank 2
  EXPECT_EQ(l.sends, (std::vector<size_t>{16, 0, 24}));
  EXPECT_EQ(l.recvs, (std::vector<size_t>{32, 8, 24}));
  EXPECT_EQ(l.origins, (std::vector<size_t>{24, 80, 16})) << "behind what the ranks before get";
  EXPECT_EQ(l.send, 96u) << "the most that any rank sends or receives: rank 1 gets 64 + 320 bytes";
  EXPECT_EQ(l.recv, 96u);
  EXPECT_EQ(l.count, 0u);
  Args args;
  args.min_bytes = args.max_bytes = 384;
  EXPECT_NO_THROW(p.check(args, 3));
  const auto refusal = [&](size_t min, size_t max, int nranks) {
    args.min_bytes = min;
    args.max_bytes = max;
    return test::outcome_of([&] { p.check(args, nranks); });
  };
  EXPECT_THAT(refusal(383, 383, 3).text, AllOf(HasSubstr("384 bytes"), HasSubstr("-e 383")));
  EXPECT_THAT(refusal(384, 1000, 3).text, HasSubstr("-b is 384 and -e 1000"));
  EXPECT_THAT(refusal(1 << 20, 1 << 20, 5).text, HasSubstr("4 rows, too few for 5 ranks"));
}

TEST_F(PerfPattern, MatricesThatCantBeRead) {
  const auto expect = [&](const std::string& content, const std::string& says) {
    const test::Outcome o = outcome_of_matrix(content);
    EXPECT_EQ(o.code, Result::invalid_usage) << content;
    EXPECT_THAT(o.text, HasSubstr(says));
  };
  expect("", "no matrix");
  expect("1 2\n3 4\n5 6\n", "3 rows of 2 numbers");
  expect("1 2\n3\n", "line 2: 1 numbers, but 2 in the first row");
  expect("1 2\n3 x\n", "line 2: 'x' is no number of bytes");
  expect("1 2\n3 4611686018427387904\n", "line 2: '4611686018427387904' is no number of bytes");  // four are 2^64
  expect("1 -2\n3 4\n", "line 1: '-2'");
  expect("1 2\n3 1e30\n", "line 2: '1e30'");
  expect("1 inf\n3 4\n", "line 1: 'inf'");
  const Variable v("NCCL_TESTS_ALLTOALLV_MATRIX_FILE", "/no/such/file");
  EXPECT_THAT(test::outcome_of([] { Pattern::from_environment(); }).text, HasSubstr("/no/such/file"));
}

TEST_F(PerfPattern, RunsByAMatrix) {
  const Variable name("NCCL_TESTS_ALLTOALLV_MATRIX_FILE", file("0 100000 7\n 48 0 5000\n0 0 1600\n"));
  for (const char* ranks :
       {"alltoallv_perf -t 3", "alltoallv_perf -g 3 -y 1", "$muster run -n 3 alltoallv_perf"}) {
    const Output o = shell("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY=1 " + std::string(ranks) +
                             " -b 100000 -e 100000 -n 2 -d double");
    EXPECT_EQ(o.status, 0) << o.text;
    EXPECT_THAT(o.text, HasSubstr("# Out of bounds values : 0 OK\n"));
    EXPECT_THAT(o.text, HasSubstr("      100000             0    double    none      -1")) << ranks;
    EXPECT_THAT(o.text, HasSubstr("mode=matrix nranks=3 matrix_dim=3 scale=1.000 time_usec="));
    EXPECT_THAT(o.text, AllOf(HasSubstr("#   rank=0 send_bytes=100000 recv_bytes=48 alg_bw="),
                                HasSubstr("#   rank=1 send_bytes=5040 recv_bytes=100000 alg_bw="),
                                HasSubstr("#   rank=2 send_bytes=1600 recv_bytes=6592 alg_bw=")));
  }
  EXPECT_EQ(shell("alltoallv_perf -t 3 -b 8 -e 8").status, 6);
  EXPECT_EQ(shell("alltoallv_perf -t 4 -b 1M -e 1M").status, 6);
  EXPECT_EQ(shell("NCCL_TESTS_ALLTOALLV_SPREAD=x alltoallv_perf -t 2").status, 6);
}

TEST_F(PerfPattern, SummaryOfASpread) {
  const Output o = shell(
      "NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY=1 NCCL_TESTS_ALLTOALLV_SPREAD=0 alltoallv_perf -t 2 -b 1024 -e "
      "1024 -n 2");
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("mode=generated nranks=2 total_bytes=1024 spread=0.000 time_usec="));
  EXPECT_THAT(o.text, HasSubstr("#   rank=1 send_bytes=1024 recv_bytes=1024 alg_bw="));
}

}  // namespace
}  // namespace muster::perf
