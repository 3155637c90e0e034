// What ranks count as sent, against the formulas of the algorithms: exactly.
#include "muster/bytes_sent.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "muster/muster.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::run_process_ranks;
using test::run_threads;
using test::Variable;

constexpr size_t kCount = 4 * 3 * 5 * 7 * 16;  // divisible by all numbers of ranks below

// What a call adds to this rank's counters.
BytesSent of(Communicator& c, const std::function<void()>& call) {
  const BytesSent before = bytes_sent(c);
  call();
  return bytes_sent(c) - before;
}

struct Sums {
  std::vector<float> in, all, shard, gathered;
  explicit Sums(size_t count, int n, int rank)
      : in(count), all(count), shard(count / static_cast<size_t>(n)), gathered(count) {
    for (size_t i = 0; i < count; ++i)
      in[i] = static_cast<float>((i * 7 + static_cast<size_t>(rank) * 31) % 1013) / 7.0f;
  }
  void all_reduce(Communicator& c) {
    c.all_reduce(in.data(), all.data(), in.size(), DataType::float32, RedOp::sum);
  }
  void reduce_scatter(Communicator& c) {
    c.reduce_scatter(in.data(), shard.data(), shard.size(), DataType::float32, RedOp::sum);
  }
  void all_gather(Communicator& c) {
    c.all_gather(shard.data(), gathered.data(), shard.size(), DataType::float32);
  }
};

// All-reduce = reduce-scatter + all-gather: the same bytes, 2 (N-1)/N and (N-1)/N of the data, and the same
// bits.
void check_identity(Communicator& c, int rank, size_t count) {
  const auto n = static_cast<size_t>(c.size());
  Sums sums(count, c.size(), rank);
  const uint64_t part = count * sizeof(float) / n * (n - 1);
  const BytesSent both = of(c, [&] { sums.all_reduce(c); });
  const BytesSent first = of(c, [&] { sums.reduce_scatter(c); });
  const BytesSent second = of(c, [&] { sums.all_gather(c); });
  EXPECT_EQ(first.total(), part);
  EXPECT_EQ(second.total(), part);
  EXPECT_EQ(both.total(), 2 * part);
  EXPECT_EQ(std::memcmp(sums.all.data(), sums.gathered.data(), count * sizeof(float)), 0);
}

TEST(BytesSent, RingAndDirectAlgorithmsSendWhatTheFormulasSay) {
  for (const char* algorithm : {"ring", "direct"})
    for (const int n : {1, 2, 3, 4, 5, 7})
      for (const size_t count : {kCount, kCount * 64}) {
        SCOPED_TRACE(std::string(algorithm) + ", " + std::to_string(n) + " ranks, " + std::to_string(count) +
                     " elements");
        const Variable forced("MUSTER_ALGO", algorithm), slots("MUSTER_WINDOWS", "0");
        run_threads(n, [&](Communicator& c, int rank) {
          check_identity(c, rank, count);
          const BytesSent sent = bytes_sent(c);
          EXPECT_EQ(sent.total(), sent.shared_memory);
        });
      }
}

TEST(BytesSent, ReproducibleModeKeepsTheIdentity) {
  const Variable reproducible("MUSTER_REPRODUCIBLE", "1"), forced("MUSTER_ALGO", "direct");
  run_threads(4, [&](Communicator& c, int rank) { check_identity(c, rank, kCount * 8); });
}

// Threads reach each other's buffers, so nothing goes through slots: the same bytes, loaded and stored in
// place.
TEST(BytesSent, WindowsMoveTheSameBytes) {
  run_threads(4, [&](Communicator& c, int rank) {
    check_identity(c, rank, kCount * 64);
    EXPECT_GT(bytes_sent(c).direct, 0u);
  });
}

TEST(BytesSent, OtherHostsAreCountedApart) {
  const Variable separate("NCCL_SHM_DISABLE", "1"), forced("MUSTER_ALGO", "ring");
  run_process_ranks(3, [&](Communicator& c, int rank) {
    check_identity(c, rank, kCount);
    const BytesSent sent = bytes_sent(c);
    EXPECT_EQ(sent.total(), sent.network);
  });
}

TEST(BytesSent, OfMessagesPutsAndUnevenCalls) {
  const Variable slots("MUSTER_WINDOWS", "0");
  run_threads(3, [](Communicator& c, int rank) {
    std::vector<int32_t> mine(100, rank), theirs(100);
    const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
    for (int round = 0; round < 2; ++round)
      EXPECT_EQ(of(c,
                   [&] {
                     group_start();
                     c.send(mine.data(), 100, DataType::int32, next);
                     c.recv(theirs.data(), 100, DataType::int32, previous);
                     group_end();
                   })
                    .total(),
                400u);
    const std::vector<size_t> counts{7, 0, 50};
    std::vector<int32_t> all(57);
    const auto own = counts[static_cast<size_t>(rank)];
    uint64_t sent = 0;  // of all ranks: each part to two others
    const BytesSent one =
        of(c, [&] { c.all_gather_v(mine.data(), own, all.data(), counts, {}, DataType::int32); });
    uint64_t sent_here = one.total();
    c.all_reduce(&sent_here, &sent, 1, DataType::uint64, RedOp::sum);
    EXPECT_EQ(sent, 57u * 4 * 2);
    const Window window = c.register_window(theirs.data(), 400);
    EXPECT_EQ(of(c,
                 [&] {
                   c.put_signal(mine.data(), 80, next, window, 0);
                   const SignalWait wait{previous, 1, {}};
                   c.wait_signal({&wait, 1});
                 })
                  .direct,
              80u);
    EXPECT_EQ(of(c, [&] { c.put_signal(mine.data(), 80, rank, window, 200); }).total(), 0u);
    c.barrier();
  });
}

TEST(BytesSent, OfNoCommunicator) {
  EXPECT_EQ(test::outcome_of([] { bytes_sent(Communicator()); }).code, Result::invalid_argument);
}

}  // namespace
}  // namespace muster
