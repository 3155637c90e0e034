// What a call accepts and refuses, and buffers of every awkward form: an error names the argument before anything moves,
// and what is accepted gives exact results and touches nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <functional>
#include <vector>

#include "algorithms/algorithms.h"
#include "muster/muster.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::Outcome;
using test::outcome_of;
using test::run_process_ranks;
using test::run_threads;
using test::Variable;
using testing::AllOf;
using testing::HasSubstr;

constexpr DataType kFloat = DataType::float32, kInt = DataType::int32, kByte = DataType::int8;
constexpr RedOp kSum = RedOp::sum;

void refused(const std::function<void()>& call, const std::string& naming) {
  const Outcome o = outcome_of(call);
  EXPECT_EQ(o.code, Result::invalid_argument) << o;
  EXPECT_THAT(o.text, HasSubstr(naming));
}

// The communicator works, and the thread is in no group.
void works(Communicator& c) {
  int x = c.rank() + 1, sum = 0;
  c.all_reduce(&x, &sum, 1, kInt, kSum);
  EXPECT_EQ(sum, c.size() * (c.size() + 1) / 2);
}

TEST(Arguments, NullBuffersAreNamed) {
  run_threads(2, [](Communicator& c, int rank) {
    float x[4] = {};
    const std::string send = "on rank " + std::to_string(rank) + ": send buffer is null";
    const std::string recv = "on rank " + std::to_string(rank) + ": receive buffer is null";
    refused([&] { c.all_reduce(nullptr, x, 2, kFloat, kSum); }, "all_reduce(count 2, float32, sum) " + send);
    refused([&] { c.all_reduce(x, nullptr, 2, kFloat, kSum); }, recv);
    refused([&] { c.all_gather(nullptr, x, 2, kFloat); }, send);
    refused([&] { c.all_gather(x, nullptr, 2, kFloat); }, recv);
    refused([&] { c.reduce_scatter(nullptr, x, 2, kFloat, kSum); }, send);
    refused([&] { c.reduce_scatter(x, nullptr, 2, kFloat, kSum); }, recv);
    refused([&] { c.all_to_all(nullptr, x, 2, kFloat); }, send);
    refused([&] { c.all_to_all(x, nullptr, 2, kFloat); }, recv);
    refused([&] { c.broadcast(nullptr, x, 2, kFloat, rank); }, send);
    refused([&] { c.broadcast(x, nullptr, 2, kFloat, rank); }, recv);
    refused([&] { c.broadcast(x, nullptr, 2, kFloat, 1 - rank); }, recv);
    refused([&] { c.reduce(nullptr, x, 2, kFloat, kSum, 1 - rank); }, send);
    refused([&] { c.reduce(x, nullptr, 2, kFloat, kSum, rank); }, recv);
    refused([&] { c.gather(nullptr, x, 2, kFloat, 1 - rank); }, send);
    refused([&] { c.gather(x, nullptr, 2, kFloat, rank); }, recv);
    refused([&] { c.scatter(nullptr, x, 2, kFloat, rank); }, send);
    refused([&] { c.scatter(x, nullptr, 2, kFloat, 1 - rank); }, recv);
    refused([&] { c.send(nullptr, 2, kFloat, 1 - rank); }, "buffer is null");
    refused([&] { c.recv(nullptr, 2, kFloat, 1 - rank); }, "buffer is null");
    works(c);
  });
}

TEST(Arguments, NullIsRightWhereNothingIsReadOrWritten) {
  const auto body = [](Communicator& c, int rank) {
    const bool root = rank == 1;
    for (const size_t count : {size_t{3}, size_t{100000}}) {
      std::vector<int> a(2 * count, rank + 1), b(2 * count, -1);
      c.broadcast(root ? a.data() : nullptr, b.data(), count, kInt, 1);
      EXPECT_EQ(b[count - 1], 2);
      c.reduce(a.data(), root ? b.data() : nullptr, count, kInt, kSum, 1);
      EXPECT_EQ(b[count - 1], root ? 3 : 2);
      c.gather(a.data(), root ? b.data() : nullptr, count, kInt, 1);
      EXPECT_EQ(b[count - 1], root ? 1 : 2);
      c.scatter(root ? a.data() : nullptr, b.data(), count, kInt, 1);
      EXPECT_EQ(b[count - 1], 2);
    }
  };
  run_threads(2, body);
  run_process_ranks(2, body);
}

TEST(Arguments, ZeroCountsNeedNoBuffers) {
  const auto body = [](Communicator& c, int rank) {
    const auto empty = [&] {
      c.all_reduce(nullptr, nullptr, 0, kFloat, kSum);
      c.all_gather(nullptr, nullptr, 0, kFloat);
      c.reduce_scatter(nullptr, nullptr, 0, kFloat, RedOp::avg);
      c.all_to_all(nullptr, nullptr, 0, kFloat);
      c.broadcast(nullptr, nullptr, 0, kFloat, 1);
      c.reduce(nullptr, nullptr, 0, kFloat, RedOp::max, 0);
      c.gather(nullptr, nullptr, 0, kFloat, 0);
      c.scatter(nullptr, nullptr, 0, kFloat, 1);
    };
    empty();  // also the first of the communicator
    if (rank == 0)
      c.send(nullptr, 0, kFloat, 1);
    else if (rank == 1)
      c.recv(nullptr, 0, kFloat, 0);
    group_start();
    empty();
    for (int peer = 0; peer < c.size(); ++peer) {
      c.send(nullptr, 0, kFloat, peer);
      c.recv(nullptr, 0, kFloat, peer);
    }
    group_end();
    HostStream stream;
    c.all_reduce(nullptr, nullptr, 0, kFloat, kSum, &stream);
    stream.synchronize();
    works(c);
  };
  run_threads(4, body);
  run_process_ranks(2, body);
}

TEST(Arguments, NumbersOutOfRange) {
  run_threads(4, [](Communicator& c, int rank) {
    float x[8] = {};
    for (const int bad : {-1, 12, INT_MAX}) {
      const auto type = static_cast<DataType>(bad);
      const std::string text = "type " + std::to_string(bad) + " is not an element type (0..11)";
      refused([&] { c.all_reduce(x, x, 1, type, kSum); }, "all_reduce: " + text);
      refused([&] { c.send(x, 1, type, 0); }, text);
      refused([&] { c.all_gather(x, x + 4, 0, type); }, text);
    }
    for (const int bad : {-1, 12, INT_MAX}) {
      const auto op = static_cast<RedOp>(bad);
      const std::string text = "operation " + std::to_string(bad) + " is not a reduction (0..11)";
      refused([&] { c.all_reduce(x, x, 1, kFloat, op); }, text);
      refused([&] { c.reduce(x, x, 1, kFloat, op, 0); }, text);
      refused([&] { c.reduce_scatter(x, x + 4, 1, kFloat, op); }, text);
    }
    for (const RedOp op : {RedOp::bit_and, RedOp::bit_or, RedOp::bit_xor}) {
      const std::string text = std::string(name_of(op)) + " of float32 elements: bitwise operations are for integer types";
      refused([&] { c.all_reduce(x, x, 1, kFloat, op); }, "all_reduce: " + text);
      refused([&] { c.reduce(x, x, 0, kFloat, op, 0); }, "reduce: " + text);
      refused([&] { c.reduce_scatter(x, x + 4, 1, kFloat, op); }, "reduce_scatter: " + text);
    }
    for (const int bad : {-1, 4, INT_MAX, INT_MIN}) {
      const std::string text = "on rank " + std::to_string(rank) + ": root " + std::to_string(bad) + " is not in 0..3";
      refused([&] { c.broadcast(x, x, 1, kFloat, bad); }, text);
      refused([&] { c.reduce(x, x, 1, kFloat, kSum, bad); }, text);
      refused([&] { c.gather(x, x, 1, kFloat, bad); }, text);
      refused([&] { c.scatter(x, x, 0, kFloat, bad); }, text);
      const std::string peer = "peer " + std::to_string(bad) + " is not in 0..3";
      refused([&] { c.send(x, 1, kFloat, bad); }, peer);
      refused([&] { c.recv(x, 1, kFloat, bad); }, peer);
    }
    for (const size_t huge : {SIZE_MAX, SIZE_MAX / 4 + 1, size_t{1} << 61, size_t{1} << 55}) {
      const std::string text = "count " + std::to_string(huge) + " times 4 bytes times 4 ranks";
      refused([&] { c.all_reduce(x, x, huge, kFloat, kSum); }, text);
      refused([&] { c.all_gather(x, x, huge, kFloat); }, text);
      refused([&] { c.send(x, huge, kFloat, 0); }, text);
    }
    const double factor = 2;
    refused([&] { c.all_reduce(x, x, 1, kFloat, ReduceOp::pre_mul_sum(&factor, DataType::float64)); },
            "factor of pre_mul_sum is float64, the elements are float32");
    refused([&] { ReduceOp::pre_mul_sum(nullptr, kFloat); }, "scalar is null");
    refused([&] { ReduceOp::pre_mul_sum(&factor, static_cast<DataType>(99)); }, "99 is not an element type");
    works(c);
  });
}

TEST(Arguments, OfInit) {
  const UniqueId id = make_unique_id();
  refused([&] { Communicator::init(0, 0, id); }, "communicator of 0 ranks");
  refused([&] { Communicator::init(-3, 0, id); }, "communicator of -3 ranks");
  refused([&] { Communicator::init(4, 4, id); }, "rank 4 is not in 0..3");
  refused([&] { Communicator::init(4, -1, id); }, "rank -1 is not in 0..3");
  refused([&] { Communicator::init_all(0); }, "init_all of 0 ranks");
  refused([&] { Communicator::init(INT_MAX, 0, id); }, "2147483647");
}

TEST(Arguments, BuffersThatOverlapOtherThanInPlace) {
  run_threads(4, [](Communicator& c, int rank) {
    constexpr size_t count = 100;
    std::vector<float> memory(12 * count, 1);
    float* const m = memory.data() + 4 * count;
    const auto own = static_cast<size_t>(rank) * count;
    const std::string text = "overlap by other than the in-place form";
    refused([&] { c.all_reduce(m, m + 1, count, kFloat, kSum); }, text);
    refused([&] { c.all_reduce(m + count - 1, m, count, kFloat, kSum); }, text);
    refused([&] { c.broadcast(m, m + 1, count, kFloat, rank); }, text);
    refused([&] { c.reduce(m, m + 1, count, kFloat, kSum, rank); }, text);
    refused([&] { c.all_to_all(m, m + count, count, kFloat); }, text);
    refused([&] { c.all_gather(m + own + 1, m, count, kFloat); }, text);
    refused([&] { c.all_gather(m + (own + count) % (4 * count), m, count, kFloat); }, text);
    refused([&] { c.reduce_scatter(m, m + own + 1, count, kFloat, kSum); }, text);
    refused([&] { c.reduce_scatter(m, m + (own + count) % (4 * count), count, kFloat, kSum); }, text);
    refused([&] { c.gather(m + (own + count) % (4 * count), m, count, kFloat, rank); }, text);
    refused([&] { c.scatter(m, m + (own + count) % (4 * count), count, kFloat, rank); }, text);
    // Side by side is not overlapping.
    c.all_reduce(m, m + count, count, kFloat, kSum);
    c.all_reduce(m, m - count, count, kFloat, kSum);
    c.all_gather(m - count, m, count, kFloat);
    c.reduce_scatter(m, m + 4 * count, count, kFloat, kSum);
    works(c);
  });
}

// An error inside a group, however deep, ends the group: the thread's next plain call works.
TEST(Groups, ErrorsEndThem) {
  run_threads(2, [](Communicator& c, int) {
    float x = 0;
    const double factor = 2;
    Communicator empty;
    const std::function<void()> errors[] = {
        [&] { c.all_reduce(nullptr, &x, 1, kFloat, kSum); },
        [&] { c.all_reduce(&x, &x, 1, kFloat, ReduceOp::pre_mul_sum(&factor, DataType::float64)); },
        [&] { c.send(&x, 1, kFloat, 7); },
        [&] { empty.barrier(); },
    };
    for (const auto& error : errors) {
      group_start();
      group_start();
      group_start();
      c.barrier();
      EXPECT_EQ(outcome_of(error).code, Result::invalid_argument);
      const Outcome end = outcome_of([] { group_end(); });
      EXPECT_EQ(end.code, Result::invalid_usage);
      EXPECT_THAT(end.text, HasSubstr("group_end without group_start"));
      works(c);
    }
  });
}

TEST(Groups, NestedAndLarge) {
  run_threads(8, [](Communicator& c, int rank) {
    const int next = (rank + 1) % 8, prev = (rank + 7) % 8;
    for (const int messages : {2047, 2048, 2049}) {
      std::vector<int> out(static_cast<size_t>(messages), rank), in(out.size(), -1);
      for (int i = 0; i < 3; ++i) group_start();
      for (size_t i = 0; i < out.size(); ++i) {
        c.send(&out[i], 1, kInt, next);
        c.recv(&in[i], 1, kInt, prev);
      }
      for (int i = 0; i < 3; ++i) group_end();
      EXPECT_THAT(in, testing::Each(prev));
    }
    int x = 0;
    group_start();
    for (int i = 0; i < 33000; ++i) {
      c.send(&x, 1, kInt, next);
      c.recv(&x, 1, kInt, prev);
    }
    const Outcome o = outcome_of([] { group_end(); });
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, HasSubstr("66000 sends and receives; at most 65535"));
    works(c);
  });
}

TEST(Groups, MessagesOfOneGroupOnTwoStreams) {
  run_threads(2, [](Communicator& c, int rank) {
    HostStream stream;
    int x = 0, y = 0;
    group_start();
    c.send(&x, 1, kInt, 1 - rank, &stream);
    const Outcome o = outcome_of([&] { c.recv(&y, 1, kInt, 1 - rank); });
    EXPECT_EQ(o.code, Result::invalid_usage);
    EXPECT_THAT(o.text, HasSubstr("on different streams"));
    works(c);
  });
}

// Elements of one byte, two, ... on addresses that are multiples of nothing, send and receive shifted differently.
TEST(Alignment, EveryTypeAtOddAddresses) {
  const auto body = [](Communicator& c, int rank) {
    for (int t = 0; t < kDataTypes; ++t) {
      const auto type = static_cast<DataType>(t);
      const size_t size = size_of(type);
      for (const size_t count : {size_t{1}, size_t{33}, size_t{5003}})
        for (const size_t shift : {size_t{1}, size_t{3}, size_t{7}, size_t{15}}) {
          std::vector<unsigned char> a(4 * count * size + 256), b(a.size(), 0x5a);
          unsigned char *send = a.data() + shift * size + shift % 2, *recv = b.data() + (15 - shift) + 1;
          for (size_t i = 0; i < 4 * count * size; ++i) send[i] = static_cast<unsigned char>(i * 7 + static_cast<size_t>(rank));
          c.all_gather(send, recv, count, type);
          for (size_t r = 0; r < 4; ++r)
            for (size_t i = 0; i < count * size; ++i)
              ASSERT_EQ(recv[r * count * size + i], static_cast<unsigned char>(i * 7 + r)) << name_of(type) << " byte " << i;
          ASSERT_EQ(recv[-1], 0x5a);
          ASSERT_EQ(recv[4 * count * size], 0x5a);
          std::memset(b.data(), 0x5a, b.size());
          // Sum of one value and zeros of all other ranks is that value.
          if (rank != 2) std::memset(send, 0, count * size);
          if (rank == 2)
            for (size_t i = 0; i < count * size; ++i) send[i] = i % size == 0 ? static_cast<unsigned char>(i / size % 15 + 16) : 0x18;
          c.all_reduce(send, recv, count, type, kSum);
          for (size_t i = 0; i < count * size; ++i)
            ASSERT_EQ(recv[i], i % size == 0 ? static_cast<unsigned char>(i / size % 15 + 16) : 0x18) << name_of(type) << " byte " << i;
          ASSERT_EQ(recv[-1], 0x5a);
          ASSERT_EQ(recv[count * size], 0x5a);
        }
    }
  };
  run_threads(4, body);
  run_process_ranks(4, body);
}

TEST(InPlace, ReduceScatterTouchesOnlyItsMemory) {
  const auto body = [](Communicator& c, int rank) {
    for (const size_t count : {size_t{5}, size_t{3000}, size_t{100000}}) {
      std::vector<int> memory((4 + 2) * count, 77);
      int* data = memory.data() + count;
      for (size_t i = 0; i < 4 * count; ++i) data[i] = rank + static_cast<int>(i % 1000);
      c.reduce_scatter(data, data + static_cast<size_t>(rank) * count, count, kInt, kSum);
      for (size_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(rank) * count + i;
        ASSERT_EQ(data[at], 6 + 4 * static_cast<int>(at % 1000));
        ASSERT_EQ(memory[i], 77);
        ASSERT_EQ(memory[5 * count + i], 77);
      }
    }
  };
  run_threads(4, body);
  run_process_ranks(4, body);
}

TEST(InPlace, ReduceLeavesOtherRanksAlone) {
  const auto body = [](Communicator& c, int rank) {
    for (const size_t count : {size_t{5}, size_t{3000}, size_t{100000}}) {
      std::vector<int> a(count, rank + 1), b(count, 99);
      c.reduce(a.data(), b.data(), count, kInt, kSum, 2);
      EXPECT_EQ(a, std::vector<int>(count, rank + 1));
      EXPECT_EQ(b, std::vector<int>(count, rank == 2 ? 10 : 99));
      c.reduce(a.data(), a.data(), count, kInt, kSum, 2);
      EXPECT_EQ(a, std::vector<int>(count, rank == 2 ? 10 : rank + 1));
    }
  };
  run_threads(4, body);
  run_process_ranks(4, body);
}

// --- counts ---

// Sums and copies of small numbers at each of these counts, everything exact.
void exact(Communicator& c, size_t count) {
  const int n = c.size(), rank = c.rank();
  const auto value = [](int r, size_t i) { return static_cast<int8_t>((i * 3 + static_cast<size_t>(r) * 5) % 7); };
  std::vector<int8_t> a(count), b(count, -1), all(count * static_cast<size_t>(n), -1);
  for (size_t i = 0; i < count; ++i) a[i] = value(rank, i);
  const auto sum = [&](size_t i) {
    int s = 0;
    for (int r = 0; r < n; ++r) s += value(r, i);
    return static_cast<int8_t>(s);
  };
  c.all_reduce(a.data(), b.data(), count, kByte, kSum);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(b[i], sum(i)) << "all_reduce, count " << count << ", element " << i;
  c.all_gather(a.data(), all.data(), count, kByte);
  for (int r = 0; r < n; ++r)
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(all[static_cast<size_t>(r) * count + i], value(r, i)) << "all_gather, count " << count << ", element " << i;
  c.reduce_scatter(all.data(), b.data(), count, kByte, RedOp::max);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(b[i], value(rank, i)) << "reduce_scatter, count " << count << ", element " << i;
  b.assign(count, -1);
  c.broadcast(a.data(), b.data(), count, kByte, n - 1);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(b[i], value(n - 1, i)) << "broadcast, count " << count << ", element " << i;
  c.reduce(a.data(), b.data(), count, kByte, kSum, 0);
  for (size_t i = 0; rank == 0 && i < count; ++i) ASSERT_EQ(b[i], sum(i)) << "reduce, count " << count << ", element " << i;
}

TEST(Counts, EverySmallOne) {
  for (const int n : {2, 3, 5, 8})
    run_threads(n, [](Communicator& c, int) {
      for (size_t count = 1; count <= 400 && !testing::Test::HasFatalFailure(); ++count) exact(c, count);
    });
  run_process_ranks(2, [](Communicator& c, int) {
    for (size_t count = 1; count <= 400 && !testing::Test::HasFatalFailure(); ++count) exact(c, count);
  });
}

TEST(Counts, AroundSlotsAndTiles) {
  const auto body = [](Communicator& c, int) {
    for (const size_t unit : {size_t{1024}, size_t{2048}, size_t{4096}, size_t{32768}, size_t{65536}, size_t{262144}, size_t{524288}})
      for (const int off : {-1, 0, 1})
        if (!testing::Test::HasFatalFailure()) exact(c, unit + static_cast<size_t>(off));
  };
  run_threads(3, body);
  run_process_ranks(2, body);
  const Variable no_windows("MUSTER_WINDOWS", "0"), small("MUSTER_SLOT_BYTES", "1K");
  run_threads(3, body);
}

// Where one rank's share has a tile more than another's.
TEST(Counts, AroundWindowTiles) {
  constexpr size_t tile = 4 << 20;
  for (const size_t n : {size_t{2}, size_t{3}})
    run_threads(static_cast<int>(n), [&](Communicator& c, int rank) {
      for (const size_t more : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{200}}) {
        const size_t count = n * tile + more;
        std::vector<uint8_t> a(count, static_cast<uint8_t>(rank + 1)), b(count);
        const auto expect_all = [&](int value) {
          ASSERT_EQ(std::count(b.begin(), b.end(), static_cast<uint8_t>(value)), static_cast<ptrdiff_t>(count)) << count;
        };
        c.all_reduce(a.data(), b.data(), count, DataType::uint8, kSum);
        expect_all(n == 2 ? 3 : 6);
        b.assign(count, 0);
        c.reduce(a.data(), b.data(), count, DataType::uint8, RedOp::max, 1);
        expect_all(rank == 1 ? static_cast<int>(n) : 0);
        c.broadcast(a.data(), b.data(), count, DataType::uint8, 1);
        expect_all(2);
      }
    });
}

TEST(Counts, MoreChannelsThanElements) {
  const Variable channels("MUSTER_CHANNELS", "16"), no_windows("MUSTER_WINDOWS", "0");
  for (const char* algorithm : {"", "ring", "direct", "doubling", "halving_doubling", "chain", "scatter_gather", "binomial"}) {
    const Variable forced("MUSTER_ALGO", algorithm);
    run_threads(8, [](Communicator& c, int) {
      for (size_t count = 1; count < 64 && !testing::Test::HasFatalFailure(); count += c.size() == 8 ? 3 : 1) exact(c, count);
      if (!testing::Test::HasFatalFailure()) exact(c, 10007);
    });
  }
}

TEST(Counts, MultiplesOfNothing) {
  for (const size_t count : {size_t{1048576}, size_t{1055611}})
    run_threads(8, [&](Communicator& c, int rank) {
      std::vector<float> a(count);
      for (size_t i = 0; i < count; ++i) a[i] = static_cast<float>((i + static_cast<size_t>(rank)) % 8);
      c.all_reduce(a.data(), a.data(), count, kFloat, kSum);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(a[i], 28.f) << i;
    });
}

TEST(Counts, LongMultiplesOfNothing) {
  for (const size_t count : {10556587, 10556576, 10556592, 10556608, 9999999, 12345678})
    run_threads(8, [&](Communicator& c, int rank) {
      std::vector<float> a(count);
      for (size_t i = 0; i < count; ++i) a[i] = static_cast<float>((i + static_cast<size_t>(rank)) % 8);
      c.all_reduce(a.data(), a.data(), count, kFloat, kSum);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(a[i], 28.f) << i;
    });
}

// --- beyond what 32 bits count ---

// Bytes that say where they are, cheaply: 8 at a time.
void fill(std::vector<uint64_t>& v, uint64_t seed) {
  for (size_t i = 0; i < v.size(); ++i) v[i] = (i + seed) * 0x9e3779b97f4a7c15ULL & 0x3f3f3f3f3f3f3f3fULL;
}
uint64_t filled(size_t i, uint64_t seed) { return (i + seed) * 0x9e3779b97f4a7c15ULL & 0x3f3f3f3f3f3f3f3fULL; }

constexpr size_t kBeyond = (size_t{1} << 32) + 8;  // bytes

void all_reduce_beyond() {
  run_threads(2, [](Communicator& c, int rank) {
    std::vector<uint64_t> a(kBeyond / 8);
    fill(a, static_cast<uint64_t>(rank));
    c.all_reduce(a.data(), a.data(), kBeyond, kByte, kSum);
    // Bytes below 0x40: their sums never carry into the next byte.
    for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], filled(i, 0) + filled(i, 1)) << i;
  });
}

TEST(Counts, LongAllReduceOfMoreThan4GiB) { all_reduce_beyond(); }

TEST(Counts, LongAllReduceOfMoreThan4GiBThroughSlots) {
  const Variable no_windows("MUSTER_WINDOWS", "0");
  all_reduce_beyond();
}

TEST(Counts, LongReduceScatterAndAllGatherOfMoreThan4GiB) {
  run_threads(2, [](Communicator& c, int rank) {
    constexpr size_t half = kBeyond / 2;
    std::vector<uint64_t> a(kBeyond / 8);
    fill(a, static_cast<uint64_t>(rank));
    auto* bytes = reinterpret_cast<uint8_t*>(a.data());
    uint8_t* own = bytes + static_cast<size_t>(rank) * half;
    c.reduce_scatter(bytes, own, half, DataType::uint8, kSum);
    c.all_gather(own, bytes, half, DataType::uint8);
    const auto expected = [](size_t byte) {
      const auto part = [&](uint64_t seed) { return filled(byte / 8, seed) >> byte % 8 * 8 & 0xff; };
      return static_cast<uint8_t>(part(0) + part(1));
    };
    for (size_t i = 0; i < kBeyond; i += i % 4096 == 0 && i + 4096 < kBeyond ? 509 : 1021) ASSERT_EQ(bytes[i], expected(i)) << i;
    for (size_t i = kBeyond - 64; i < kBeyond; ++i) ASSERT_EQ(bytes[i], expected(i)) << i;
  });
}

TEST(Counts, LongMessageOfMoreThan4GiB) {
  run_threads(2, [](Communicator& c, int rank) {
    std::vector<uint64_t> a(kBeyond / 8);
    if (rank == 0) {
      fill(a, 5);
      c.send(a.data(), kBeyond, kByte, 1);
    } else {
      c.recv(a.data(), kBeyond, kByte, 0);
      for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], filled(i, 5)) << i;
    }
  });
}

}  // namespace
}  // namespace muster
