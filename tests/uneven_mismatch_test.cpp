// V-variants called wrongly: counts that ranks disagree about are found and spelled out on all ranks, whoever sends and
// whoever waits; arguments that can't be right are refused before anything is done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/uneven.h"
#include "muster/muster.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::Outcome;
using test::outcome_of;
using test::run_process_ranks;
using test::run_threads;
using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using namespace std::chrono_literals;

using Counts = std::vector<size_t>;
constexpr DataType kInt = DataType::int32;
const Counts kNone;

std::string who(int rank) { return "rank " + std::to_string(rank) + " \\(host [^ ,]+, pid [0-9]+\\)"; }

// Every rank gets the error, in this call or in the barriers after it; the communicator keeps it.
void expect_everywhere(Communicator& c, const std::function<void()>& call, const std::string& regex, Result code = Result::invalid_usage) {
  c.barrier();
  Outcome o = outcome_of(call);
  for (int i = 0; i < 3 && o.code == Result::success; ++i) o = outcome_of([&] { c.barrier(); });
  EXPECT_EQ(o.code, code) << o;
  EXPECT_THAT(o.text, ContainsRegex(regex)) << "on rank " << c.rank();
  EXPECT_EQ(c.async_error(), code);
}
void everywhere(int n, const std::function<void(Communicator&, int)>& body) {
  run_threads(n, body);
  run_process_ranks(n, body);
}

// One rank has another idea of one rank's count. Small, and large enough for windows.
TEST(UnevenMismatch, CountsThatAllRanksMustKnow) {
  for (const size_t scale : {size_t{1}, size_t{9000}})
    for (const int odd : {0, 2})
      everywhere(3, [&](Communicator& c, int rank) {
        Counts counts{3 * scale, 0, 5 * scale};
        if (rank == odd) counts[1] = 4 * scale;
        std::vector<int32_t> in(20 * scale), out(20 * scale);
        const std::string a = std::to_string(3 * scale), b = std::to_string(5 * scale), x = std::to_string(4 * scale);
        expect_everywhere(
            c, [&] { c.all_gather_v(in.data(), counts[static_cast<size_t>(rank)], out.data(), counts, {}, kInt); },
            "calls don't match.*(" + who(odd) + " called all_gather_v\\(counts " + a + " " + x + " " + b + ", int32\\) as call 2; " + "rank [012] .*counts " +
                a + " 0 " + b + ", int32\\) as call 2|counts " + a + " 0 " + b + ", int32\\) as call 2; " + who(odd) + " called all_gather_v\\(counts " + a +
                " " + x + " " + b + ", int32\\) as call 2)");
      });
}

TEST(UnevenMismatch, CountsOfReduceScatterV) {
  everywhere(2, [](Communicator& c, int rank) {
    const Counts counts = rank ? Counts{700, 8} : Counts{700, 9};
    std::vector<int32_t> in(800), out(800);
    expect_everywhere(c, [&] { c.reduce_scatter_v(in.data(), out.data(), counts, kInt, RedOp::sum); },
                      "reduce_scatter_v\\(counts 700 [89], int32, sum\\) as call 2; .*reduce_scatter_v\\(counts 700 [89], int32, sum\\) as call 2");
  });
}

// Two counts differ: the other rank's can't be told, but that they differ can.
TEST(UnevenMismatch, SwappedCounts) {
  everywhere(2, [](Communicator& c, int rank) {
    const Counts counts = rank ? Counts{7, 8} : Counts{8, 7};
    std::vector<int32_t> in(800), out(800);
    expect_everywhere(c, [&] { c.all_gather_v(in.data(), counts[static_cast<size_t>(rank)], out.data(), counts, {}, kInt); },
                      "all_gather_v\\(counts [78] [78], int32\\) as call 2; .*all_gather_v\\(int32\\) with other counts as call 2");
  });
}

TEST(UnevenMismatch, TypesAndVariants) {
  everywhere(2, [](Communicator& c, int rank) {
    const Counts counts{2, 3};
    std::vector<int64_t> in(8), out(8);
    expect_everywhere(c, [&] { c.all_gather_v(in.data(), counts[static_cast<size_t>(rank)], out.data(), counts, {}, rank ? kInt : DataType::int64); },
                      "all_gather_v\\(counts 2 3, int(32|64)\\) as call 2; .*all_gather_v\\(int(32|64)\\) as call 2");
  });
  everywhere(2, [](Communicator& c, int rank) {
    const Counts counts{3, 3};
    std::vector<int32_t> in(8), out(8);
    expect_everywhere(
        c, [&] { rank ? c.all_gather_v(in.data(), 3, out.data(), counts, {}, kInt) : c.all_gather(in.data(), out.data(), 3, kInt); },
        "(all_gather\\(count 3, int32\\) as call 2; .*all_gather_v\\(int32\\) as call 2|all_gather_v\\(counts 3 3, int32\\) as call 2; .*all_gather\\(count 3, int32\\) as call 2)");
  });
}

// Each pair of sent and expected, with nothing among them: a rank that expects what isn't sent doesn't wait for ever.
TEST(UnevenMismatch, CountsThatOnlyTwoRanksKnow) {
  const std::pair<size_t, size_t> pairs[] = {{5, 7}, {7, 5}, {0, 5}, {5, 0}, {300000, 10}, {10, 300000}, {0, 300000}, {300000, 0}, {4, 5}};
  for (const auto& [sent, expected] : pairs)
    for (const bool processes : {false, true}) {
      const auto body = [&, sent = sent, expected = expected](Communicator& c, int rank) {
        Counts to(3, 6), from(3, 6);
        if (rank == 2) to[0] = sent;
        if (rank == 0) from[2] = expected;
        std::vector<int32_t> in(300100), out(300100, -1);
        expect_everywhere(c, [&] { c.all_to_all_v(in.data(), to, {}, out.data(), from, {}, kInt); },
                          "counts don't match in all_to_all_v\\(int32\\) as call 2: " + who(2) + " sends " + std::to_string(sent) + " elements to " + who(0) +
                              ", which expects " + std::to_string(expected));
      };
      if (processes && sent + expected > 100) continue;
      processes ? run_process_ranks(3, body) : run_threads(3, body);
    }
}

TEST(UnevenMismatch, GatherAndScatter) {
  const std::pair<size_t, size_t> pairs[] = {{5, 7}, {0, 5}, {5, 0}, {90000, 2}};
  for (const auto& [sent, expected] : pairs) {
    const auto gather = [&, sent = sent, expected = expected](Communicator& c, int rank) {
      std::vector<int32_t> in(90100), out(90100, -1);
      const Counts from{2, expected, 2};
      expect_everywhere(c, [&] { c.gather_v(in.data(), rank == 1 ? sent : 2, out.data(), from, {}, kInt, 0); },
                        "gather_v\\(int32, root 0\\) as call 2: " + who(1) + " sends " + std::to_string(sent) + " elements to " + who(0) +
                            ", which expects " + std::to_string(expected));
    };
    run_threads(3, gather);
    const auto scatter = [&, sent = sent, expected = expected](Communicator& c, int rank) {
      std::vector<int32_t> in(90100), out(90100, -1);
      const Counts to{2, sent, 2};
      expect_everywhere(c, [&] { c.scatter_v(in.data(), to, {}, out.data(), rank == 1 ? expected : 2, kInt, 0); },
                        "scatter_v\\(int32, root 0\\) as call 2: " + who(0) + " sends " + std::to_string(sent) + " elements to " + who(1) +
                            ", which expects " + std::to_string(expected));
    };
    run_process_ranks(3, scatter);
  }
}

void refused(const std::function<void()>& call, const std::string& text) {
  const Outcome o = outcome_of(call);
  EXPECT_EQ(o.code, Result::invalid_argument) << o;
  EXPECT_THAT(o.text, HasSubstr(text));
}

TEST(UnevenArguments, AreRefusedByName) {
  run_threads(3, [](Communicator& c, int rank) {
    int32_t a[64] = {}, b[64] = {};
    const Counts ok{2, 2, 2}, two{1, 1}, begins{0, 10, 20}, huge{2, SIZE_MAX / 2, 2};
    const std::string me = " on rank " + std::to_string(rank) + ": ";
    refused([&] { c.all_gather_v(a, 2, b, two, {}, kInt); }, "all_gather_v" + me + "recv_counts has 2 entries; the communicator has 3 ranks");
    refused([&] { c.all_gather_v(a, 2, b, ok, two, kInt); }, "there are 2 displacements for recv_counts");
    refused([&] { c.all_gather_v(a, 3, b, ok, {}, kInt); }, "it sends 3 elements to itself and expects 2");
    refused([&] { c.all_gather_v(a, 2, b, huge, {}, kInt); }, "recv_counts for rank 1 is " + std::to_string(SIZE_MAX / 2) + " elements of int32");
    refused([&] { c.all_gather_v(a, 2, b, ok, Counts{0, 1, 4}, kInt); }, "parts of the receive buffer overlap: 2 elements at 0 and 2 at 1");
    refused([&] { c.all_gather_v(nullptr, 2, b, ok, {}, kInt); }, "send buffer is null");
    refused([&] { c.all_gather_v(a, 2, nullptr, ok, {}, kInt); }, "receive buffer is null");
    refused([&] { c.all_gather_v(b + 1 + 2 * rank, 2, b, ok, {}, kInt); }, "overlap by other than the in-place form");
    refused([&] { c.all_gather_v(a, 2, b, ok, {}, static_cast<DataType>(12)); }, "is not an element type");
    refused([&] { c.reduce_scatter_v(a, b, two, kInt, RedOp::sum); }, "recv_counts has 2 entries");
    refused([&] { c.reduce_scatter_v(a, b, ok, DataType::float32, RedOp::bit_or); }, "bitwise operations are for integer types");
    refused([&] { c.reduce_scatter_v(a, a + 1, ok, kInt, RedOp::sum); }, "overlap by other than the in-place form");
    refused([&] { c.reduce_scatter_v(a, b, ok, kInt, static_cast<RedOp>(12)); }, "is not a reduction");
    refused([&] { c.all_to_all_v(a, two, {}, b, ok, {}, kInt); }, "send_counts has 2 entries");
    refused([&] { c.all_to_all_v(a, ok, {}, b, two, {}, kInt); }, "recv_counts has 2 entries");
    refused([&] { c.all_to_all_v(a, ok, {}, b, Counts{3, 3, 3}, {}, kInt); }, "it sends 2 elements to itself and expects 3");
    refused([&] { c.all_to_all_v(a, ok, {}, b, ok, Counts{0, 0, 0}, kInt); }, "parts of the receive buffer overlap");
    refused([&] { c.all_to_all_v(a, ok, {}, a, ok, begins, kInt); }, "overlap by other than the in-place form");
    for (const int bad : {-1, 3}) {
      refused([&] { c.gather_v(a, 2, b, ok, {}, kInt, bad); }, "root " + std::to_string(bad) + " is not in 0..2");
      refused([&] { c.scatter_v(a, ok, {}, b, 2, kInt, bad); }, "root " + std::to_string(bad) + " is not in 0..2");
    }
    if (rank == 1) {
      refused([&] { c.gather_v(a, 2, b, two, {}, kInt, 1); }, "recv_counts has 2 entries");
      refused([&] { c.scatter_v(a, ok, two, b, 2, kInt, 1); }, "2 displacements for send_counts");
      refused([&] { c.scatter_v(a, ok, {}, b, 3, kInt, 1); }, "it sends 2 elements to itself and expects 3");
    }
    c.all_gather_v(a, 2, b, ok, {}, kInt);  // the communicator is as good as before
    EXPECT_EQ(c.async_error(), Result::success);
  });
}

// Interleaved in one array is not overlapping.
TEST(UnevenArguments, PartsBetweenEachOtherAreAllowed) {
  run_threads(2, [](Communicator& c, int rank) {
    int32_t memory[8] = {10 + rank, -1, 20 + rank, -1, -1, -1, -1, -1};
    const Counts ones{1, 1}, even{0, 2}, odd{0, 2};
    c.all_to_all_v(memory, ones, even, memory + 1, ones, odd, kInt);
    EXPECT_EQ(memory[1], rank ? 20 : 10);
    EXPECT_EQ(memory[3], rank ? 21 : 11);
    EXPECT_EQ(memory[0], 10 + rank);
    EXPECT_EQ(memory[2], 20 + rank);
  });
}

TEST(UnevenArguments, LoseAGroupAndNothingElse) {
  run_threads(2, [](Communicator& c, int) {
    int32_t a[8] = {1, 1}, b[8] = {};
    group_start();
    c.all_reduce(a, b, 1, kInt, RedOp::sum);
    refused([&] { c.all_gather_v(a, 2, b, Counts{1}, {}, kInt); }, "recv_counts has 1 entries");
    EXPECT_EQ(outcome_of([] { group_end(); }).code, Result::invalid_usage);
    c.all_gather_v(a, 2, b, Counts{2, 2}, {}, kInt);
    c.barrier();
  });
}

TEST(Signature, TellsWhichCountDiffers) {
  const std::vector<uint64_t> mine{3, 0, 5, 1000000, 0, 7};
  for (size_t i = 0; i < mine.size(); ++i)
    for (const uint64_t other : {uint64_t{0}, uint64_t{1}, uint64_t{4}, uint64_t{1} << 33}) {
      auto theirs = mine;
      theirs[i] = other;
      const auto found = counts_of(signature_of(theirs), mine);
      ASSERT_TRUE(found) << i;
      EXPECT_EQ(*found, theirs);
    }
  EXPECT_FALSE(counts_of(signature_of(std::vector<uint64_t>{0, 3, 5, 1000000, 0, 7}), mine)) << "two differ";
  EXPECT_EQ(signature_of(std::vector<uint64_t>(9)), 0u) << "nothing to do";
}

}  // namespace
}  // namespace muster
