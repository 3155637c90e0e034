// Bits of results through communicators: the same on all ranks always, and with MUSTER_REPRODUCIBLE=1 the same whatever the
// size, algorithm, placement and transport: those of a fold by rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/algorithms.h"
#include "device/host/kernels.h"
#include "kernels_reference.h"
#include "muster/muster.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::outcome_of;
using test::run_process_ranks;
using test::run_threads;
using test::Variable;

constexpr DataType kFloats[] = {DataType::float16,  DataType::bfloat16,    DataType::float32,
                                DataType::float64, DataType::float8_e4m3, DataType::float8_e5m2};

using Bytes = std::vector<unsigned char>;

uint64_t hash_of(const void* data, size_t bytes) {
  uint64_t h = 1469598103934665603ULL;
  const auto* p = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) h = (h ^ p[i]) * 1099511628211ULL;
  return h;
}

// Values whose sums round differently in every order: signs, magnitudes over some powers of two.
Bytes random_data(DataType type, size_t count, unsigned seed) {
  std::mt19937_64 random(seed * 7919 + static_cast<unsigned>(type));
  const size_t size = size_of(type);
  Bytes v(count * size);
  for (size_t i = 0; i < count; ++i) {
    const double magnitude = std::ldexp(1 + static_cast<double>(random() % 1000) / 1000, static_cast<int>(random() % 9) - 4);
    const double x = random() % 2 ? magnitude : -magnitude;
    uint64_t bits;
    if (type == DataType::float64)
      bits = std::bit_cast<uint64_t>(x);
    else if (type == DataType::float32)
      bits = std::bit_cast<uint32_t>(static_cast<float>(x));
    else
      bits = reference::format(type).encode(static_cast<float>(x));
    std::memcpy(&v[i * size], &bits, size);
  }
  return v;
}

uint64_t element(const Bytes& v, size_t i, size_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, &v[i * size], size);
  return bits;
}

// The fold by rank of everybody's random_data.
Bytes fold(DataType type, RedOp op, size_t count, int n) {
  std::vector<Bytes> in;
  for (int r = 0; r < n; ++r) in.push_back(random_data(type, count, static_cast<unsigned>(r)));
  const size_t size = size_of(type);
  Bytes out(count * size);
  const reference::Reduction reduction{type, op == RedOp::avg ? RedOp::sum : op, 0, 0, op == RedOp::avg ? static_cast<uint32_t>(n) : 0};
  std::vector<uint64_t> elements(static_cast<size_t>(n));
  for (size_t i = 0; i < count; ++i) {
    for (size_t r = 0; r < elements.size(); ++r) elements[r] = element(in[r], i, size);
    const uint64_t bits = reference::reduce(reduction, elements);
    std::memcpy(&out[i * size], &bits, size);
  }
  return out;
}

const Bytes& folded(DataType type, RedOp op, size_t count, int n) {
  static std::mutex mutex;
  static std::map<std::tuple<DataType, RedOp, size_t, int>, Bytes> known;  // the reference is slow
  const std::lock_guard lock(mutex);
  Bytes& result = known[{type, op, count, n}];
  if (result.empty()) result = fold(type, op, count, n);
  return result;
}

// All ranks have the same bits.
void expect_equal_everywhere(Communicator& c, const Bytes& mine, const std::string& what) {
  const uint64_t h = hash_of(mine.data(), mine.size());
  std::vector<uint64_t> all(static_cast<size_t>(c.size()));
  c.all_gather(&h, all.data(), 1, DataType::uint64);
  EXPECT_THAT(all, testing::Each(h)) << what;
}

// Names of the algorithms that all_reduce can be forced to, and free choice.
std::vector<std::string> all_reduce_algorithms() {
  std::vector<std::string> names{""};
  for (const Algorithm& a : algorithms())
    if (a.coll == Coll::all_reduce) names.push_back(a.name);
  return names;
}

const size_t kCounts[] = {1, 2, 7, 63, 1000, 4096, 65537};

void same_bits(Communicator& c, int rank, const std::string& algorithm, bool large) {
  for (const DataType type : kFloats)
    for (const RedOp op : {RedOp::sum, RedOp::avg, RedOp::prod, RedOp::max})
      for (const size_t count : kCounts) {
        if (op != RedOp::sum && count > 1000) continue;
        if (!large && count > 5000) continue;
        const std::string what = algorithm + " " + name_of(type) + " " + name_of(op) + " count " + std::to_string(count);
        const Bytes in = random_data(type, count, static_cast<unsigned>(rank));
        Bytes out(in.size()), again = in;
        c.all_reduce(in.data(), out.data(), count, type, op);
        expect_equal_everywhere(c, out, what);
        c.all_reduce(again.data(), again.data(), count, type, op);
        EXPECT_EQ(out, again) << what << ": in place differs";
        Bytes repeat(in.size());
        c.all_reduce(in.data(), repeat.data(), count, type, op);
        EXPECT_EQ(out, repeat) << what << ": differs from call to call";
      }
}

TEST(SameBits, OnAllRanksByEveryAlgorithm) {
  for (const std::string& algorithm : all_reduce_algorithms()) {
    const Variable forced("MUSTER_ALGO", algorithm);
    for (const int n : {2, 3, 5, 8})
      run_threads(n, [&](Communicator& c, int rank) { same_bits(c, rank, algorithm, n < 4); });
  }
}

TEST(SameBits, BetweenProcesses) {
  for (const char* algorithm : {"", "ring", "doubling"}) {
    const Variable forced("MUSTER_ALGO", algorithm);
    run_process_ranks(4, [&](Communicator& c, int rank) { same_bits(c, rank, algorithm, true); });
  }
}

TEST(SameBits, OfAMillionElements) {
  for (const char* algorithm : {"", "ring"}) {
    const Variable forced("MUSTER_ALGO", algorithm);
    for (const DataType type : {DataType::bfloat16, DataType::float32})
      run_threads(9, [&](Communicator& c, int rank) {
        constexpr size_t count = 1'000'000;
        Bytes v(count * size_of(type));
        std::mt19937 random(static_cast<unsigned>(rank));
        for (size_t i = 0; i < count; ++i) {
          const float x = static_cast<float>(random()) / 1e9f - 2;
          const auto bits = std::bit_cast<uint32_t>(x) >> (type == DataType::bfloat16 ? 16 : 0);
          std::memcpy(&v[i * size_of(type)], &bits, size_of(type));
        }
        c.all_reduce(v.data(), v.data(), count, type, RedOp::sum);
        expect_equal_everywhere(c, v, algorithm);
      });
  }
}

// Any bit pattern, NaNs and infinities among them.
TEST(SameBits, OfAnyBitPattern) {
  for (const std::string& algorithm : all_reduce_algorithms()) {
    const Variable forced("MUSTER_ALGO", algorithm);
    run_threads(3, [&](Communicator& c, int rank) {
      for (const DataType type : kFloats)
        for (const RedOp op : {RedOp::sum, RedOp::prod, RedOp::max, RedOp::min})
          for (const size_t count : {size_t{17}, size_t{5000}}) {
            std::mt19937 random(static_cast<unsigned>(rank) + 1);
            Bytes v(count * size_of(type));
            for (auto& b : v) b = static_cast<unsigned char>(random() % 3 == 0 ? 0xff : random());
            c.all_reduce(v.data(), v.data(), count, type, op);
            expect_equal_everywhere(c, v, algorithm + " " + name_of(type) + " " + name_of(op));
          }
    });
  }
}

// On every instruction set, at every length and position: one NaN per type.
TEST(SameBits, OfNaNs) {
  for (const DataType type : kFloats) {
    const size_t size = size_of(type);
    constexpr size_t count = 300;
    std::set<uint64_t> seen;
    for (int target = 0; target < kernel_target_count(); ++target)
      for (const RedOp op : {RedOp::sum, RedOp::prod, RedOp::max, RedOp::min})
        for (uint32_t nsources = 2; nsources <= 5; ++nsources)
          for (const size_t shift : {size_t{0}, size_t{1}, size_t{5}}) {
            std::mt19937 random(nsources);
            std::vector<Bytes> in(nsources, Bytes((count + shift) * size));
            for (Bytes& v : in)
              for (auto& b : v) b = static_cast<unsigned char>(random() % 2 ? 0xff : random());
            Bytes out((count + shift) * size);
            std::vector<const void*> sources;
            for (const Bytes& v : in) sources.push_back(v.data() + shift * size);
            void* destination = out.data() + shift * size;
            ReduceArgs args;
            args.sources = sources.data();
            args.nsources = nsources;
            args.destinations = &destination;
            args.ndestinations = 1;
            args.count = count;
            reduce_kernel_of_target(target, type, op)(args);
            for (size_t i = shift; i < count + shift; ++i)
              if (const uint64_t bits = element(out, i, size); reference::is_nan(type, bits)) seen.insert(bits);
          }
    EXPECT_THAT(seen, testing::SizeIs(1)) << name_of(type);
  }
}

// --- reproducible ---

// Whatever the count, the way and the place: the fold by rank. Prefixes of one another, so size can't matter either.
void reproducible(Communicator& c, int rank, bool mem) {
  const int n = c.size();
  for (const DataType type : kFloats)
    for (const RedOp op : {RedOp::sum, RedOp::avg}) {
      constexpr size_t most = 9000;
      const size_t size = size_of(type);
      const Bytes &expected = folded(type, op, most, n), in = random_data(type, most, static_cast<unsigned>(rank));
      auto *send = static_cast<unsigned char*>(mem ? mem_alloc(in.size()) : std::malloc(in.size())),
           *recv = static_cast<unsigned char*>(mem ? mem_alloc(in.size()) : std::malloc(in.size()));
      std::memcpy(send, in.data(), in.size());
      for (const size_t count : {size_t{1}, size_t{10}, size_t{777}, size_t{3000}, most}) {
        const auto check = [&](const char* what, const unsigned char* got, size_t first, size_t elements) {
          for (size_t i = 0; i < elements; ++i)
            ASSERT_EQ(element(Bytes(got + i * size, got + (i + 1) * size), 0, size), element(expected, first + i, size))
                << what << " " << name_of(type) << " " << name_of(op) << " count " << count << " element " << first + i << " rank " << rank << " of " << n;
        };
        std::memset(recv, 0, in.size());
        c.all_reduce(send, recv, count, type, op);
        check("all_reduce", recv, 0, count);
        c.reduce(send, recv, count, type, op, n - 1);
        if (rank == n - 1) check("reduce", recv, 0, count);
        const size_t shard = count / static_cast<size_t>(n);
        if (shard) {
          c.reduce_scatter(send, recv, shard, type, op);
          check("reduce_scatter", recv, shard * static_cast<size_t>(rank), shard);
        }
        if (testing::Test::HasFatalFailure()) break;
      }
      for (auto* p : {send, recv}) mem ? mem_free(p) : std::free(p);
    }
}

TEST(Reproducible, AFoldByRankWhateverTheWay) {
  const Variable on("MUSTER_REPRODUCIBLE", "1");
  for (const char* algorithm : {"", "one_shot", "direct", "window"})
    for (const char* windows : {"1", "0"})
      for (const char* channels : {"0", "3"}) {
        const Variable a("MUSTER_ALGO", algorithm), w("MUSTER_WINDOWS", windows), k("MUSTER_CHANNELS", channels);
        SCOPED_TRACE(testing::Message() << "MUSTER_ALGO=" << algorithm << " MUSTER_WINDOWS=" << windows << " MUSTER_CHANNELS=" << channels);
        run_threads(5, [](Communicator& c, int rank) { reproducible(c, rank, false); });
      }
  for (const int n : {2, 7}) run_threads(n, [](Communicator& c, int rank) { reproducible(c, rank, false); });
}

TEST(Reproducible, AFoldByRankBetweenProcesses) {
  const Variable on("MUSTER_REPRODUCIBLE", "1");
  run_process_ranks(3, [](Communicator& c, int rank) { reproducible(c, rank, false); });
  run_process_ranks(3, [](Communicator& c, int rank) { reproducible(c, rank, true); });
  const Variable slots("MUSTER_SLOT_BYTES", "1K");
  run_process_ranks(3, [](Communicator& c, int rank) { reproducible(c, rank, false); });
}

TEST(Reproducible, RefusesAlgorithmsOfAnotherOrder) {
  const Variable on("MUSTER_REPRODUCIBLE", "1");
  for (const Algorithm& a : algorithms()) {
    if (a.rank_order || !reduces(a.coll)) continue;
    const Variable forced("MUSTER_ALGO", a.name);
    run_threads(3, [&](Communicator& c, int) {
      float x[3] = {}, y[3];
      const auto o = outcome_of([&] {
        switch (a.coll) {
          case Coll::all_reduce: return c.all_reduce(x, y, 1, DataType::float32, RedOp::sum);
          case Coll::reduce_scatter: return c.reduce_scatter(x, y, 1, DataType::float32, RedOp::sum);
          default: return c.reduce(x, y, 1, DataType::float32, RedOp::sum, 0);
        }
      });
      EXPECT_EQ(o.code, Result::invalid_usage) << a.name << " " << name_of(a.coll);
      EXPECT_THAT(o.text, testing::AllOf(testing::HasSubstr(a.name), testing::HasSubstr("MUSTER_REPRODUCIBLE")));
    });
  }
}

// Constant input, constant output: also where each hop rounds in the free mode.
TEST(Reproducible, ConstantInputGivesConstantOutput) {
  const Variable on("MUSTER_REPRODUCIBLE", "1");
  for (const char* windows : {"0", "1"}) {
    const Variable w("MUSTER_WINDOWS", windows);
    run_threads(8, [](Communicator& c, int rank) {
      const uint64_t one = reference::format(DataType::bfloat16).encode(rank == 0 ? 256.f : 1.f);
      std::vector<uint16_t> v(8 * 4096, static_cast<uint16_t>(one));
      c.all_reduce(v.data(), v.data(), v.size(), DataType::bfloat16, RedOp::sum);
      const uint64_t sum = reference::format(DataType::bfloat16).encode(264);  // exact, then rounded: 263 is no bfloat16
      EXPECT_THAT(v, testing::Each(sum));
    });
  }
}

// --- rules ---

uint64_t encode(DataType type, float x) {
  if (type == DataType::float32) return std::bit_cast<uint32_t>(x);
  if (type == DataType::float64) return std::bit_cast<uint64_t>(static_cast<double>(x));
  return reference::format(type).encode(x);
}

// All-reduces one value per rank, at `count` elements; the bits of the result, the same at every element.
uint64_t reduced(Communicator& c, DataType type, uint64_t mine, RedOp op, size_t count) {
  const size_t size = size_of(type);
  Bytes v(count * size);
  for (size_t i = 0; i < count; ++i) std::memcpy(&v[i * size], &mine, size);
  c.all_reduce(v.data(), v.data(), count, type, op);
  for (size_t i = 1; i < count; ++i) EXPECT_EQ(element(v, i, size), element(v, 0, size)) << name_of(type) << " element " << i;
  return element(v, 0, size);
}

TEST(Rules, IntegerAverageTruncatesTowardZero) {
  run_threads(3, [](Communicator& c, int rank) {
    const int up[] = {1, 2, 2};
    for (const size_t count : {size_t{1}, size_t{3}, size_t{7}, size_t{30000}}) {
      EXPECT_EQ(reduced(c, DataType::int32, static_cast<uint32_t>(up[rank]), RedOp::avg, count), 1u);
      EXPECT_EQ(reduced(c, DataType::int32, static_cast<uint32_t>(-up[rank]), RedOp::avg, count), static_cast<uint32_t>(-1));
      EXPECT_EQ(reduced(c, DataType::float32, encode(DataType::float32, static_cast<float>(rank + 1)), RedOp::avg, count),
                encode(DataType::float32, 2));
    }
  });
}

TEST(Rules, Float8SumsSaturate) {
  for (const char* algorithm : {"", "one_shot", "direct", "ring", "doubling", "halving_doubling", "bruck", "window"}) {
    const Variable forced("MUSTER_ALGO", algorithm);
    run_threads(2, [&](Communicator& c, int rank) {
      const auto sum = [&](DataType type, float a, float b, size_t count) {
        return reduced(c, type, encode(type, rank ? b : a), RedOp::sum, count);
      };
      for (const size_t count : {size_t{3}, size_t{5000}}) {
        EXPECT_EQ(sum(DataType::float8_e4m3, 448, 18, count), encode(DataType::float8_e4m3, 448)) << algorithm;
        EXPECT_EQ(sum(DataType::float8_e5m2, 57344, 4096, count), encode(DataType::float8_e5m2, 57344)) << algorithm;
        EXPECT_EQ(sum(DataType::float8_e5m2, -57344, -57344, count), encode(DataType::float8_e5m2, -57344)) << algorithm;
        EXPECT_EQ(sum(DataType::float8_e5m2, INFINITY, 1, count), encode(DataType::float8_e5m2, INFINITY)) << algorithm;
      }
    });
    // All pairs of bytes.
    run_threads(2, [&](Communicator& c, int rank) {
      for (const DataType type : {DataType::float8_e4m3, DataType::float8_e5m2}) {
        Bytes v(65536);
        for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<unsigned char>(rank ? i >> 8 : i);
        c.all_reduce(v.data(), v.data(), v.size(), type, RedOp::sum);
        for (size_t i = 0; i < v.size(); ++i) {
          const uint64_t expected = reference::reduce({type, RedOp::sum}, {i & 255, i >> 8});
          ASSERT_TRUE(reference::same(type, v[i], expected)) << algorithm << " " << name_of(type) << " " << (i & 255) << " + " << (i >> 8);
        }
      }
    });
  }
}

TEST(Rules, HalfAveragesNeitherOverflowNorVanish) {
  run_threads(8, [](Communicator& c, int) {
    const uint64_t big = encode(DataType::float16, 60000);
    for (const size_t count : {size_t{4}, size_t{30000}}) EXPECT_EQ(reduced(c, DataType::float16, big, RedOp::avg, count), big);
  });
  run_threads(64, [](Communicator& c, int) {
    const uint64_t small = encode(DataType::float16, 6e-8f);
    EXPECT_NE(small, 0u);
    for (const size_t count : {size_t{4}, size_t{3000}}) EXPECT_EQ(reduced(c, DataType::float16, small, RedOp::avg, count), small);
  });
}

// 263 lies between the bfloat16s 262 and 264; partial sums rounded on the way would give 256, 260 or 264, element by element.
void check_bfloat16_sums(Communicator& c, int rank) {
  const auto bits = [](float x) { return static_cast<uint16_t>(encode(DataType::bfloat16, x)); };
  for (const size_t count : {size_t{8}, size_t{8 * 4096}}) {
    const std::vector<uint16_t> in(count, bits(rank ? 1.f : 256.f));
    std::vector<uint16_t> all(count), at_root(count), shard(count / 8);
    c.all_reduce(in.data(), all.data(), count, DataType::bfloat16, RedOp::sum);
    EXPECT_THAT(all, testing::Each(bits(264)));
    c.reduce(in.data(), at_root.data(), count, DataType::bfloat16, RedOp::sum, 3);
    EXPECT_THAT(at_root, testing::Each(bits(rank == 3 ? 264.f : 0.f)));
    c.reduce_scatter(in.data(), shard.data(), count / 8, DataType::bfloat16, RedOp::sum);
    EXPECT_THAT(shard, testing::Each(bits(264)));
  }
}
TEST(Rules, Bfloat16SumsOnceRoundedAreExact) {
  for (const char* windows : {"0", "1"}) {
    const Variable w("MUSTER_WINDOWS", windows);
    run_threads(8, check_bfloat16_sums);
    test::run_process_ranks(8, check_bfloat16_sums);
  }
  for (const char* algorithm : {"one_shot", "direct", "scatter_gather", "window"}) {
    const Variable forced("MUSTER_ALGO", algorithm);
    run_threads(8, check_bfloat16_sums);
  }
}

// 1e8 + 1 - 1e8 + 1 depends on the order; all ranks must have the same of the possible results, and double has the right one.
TEST(Rules, CancellationInEveryPlacement) {
  run_threads(4, [](Communicator& c, int rank) {
    int order[] = {0, 1, 2, 3};
    const float value[] = {1e8f, 1.f, -1e8f, 1.f};
    do {
      const float x = value[order[rank]];
      for (const size_t count : {size_t{4}, size_t{5000}}) {
        std::vector<float> f(count, x);
        std::vector<double> d(count, x);
        c.all_reduce(f.data(), f.data(), count, DataType::float32, RedOp::sum);
        c.all_reduce(d.data(), d.data(), count, DataType::float64, RedOp::sum);
        EXPECT_EQ(std::count(d.begin(), d.end(), 2.0), static_cast<ptrdiff_t>(count));
        EXPECT_TRUE(f[0] == 0 || f[0] == 1 || f[0] == 2) << f[0];
        expect_equal_everywhere(c, Bytes(reinterpret_cast<unsigned char*>(f.data()), reinterpret_cast<unsigned char*>(f.data() + count)), "");
      }
    } while (std::next_permutation(order, order + 4));
  });
}

// rank + 1 averages to (n + 1) / 2, and all sums on the way are whole numbers: only dividing, once, can be wrong.
void check_average(int n) {
  run_threads(n, [&](Communicator& c, int rank) {
    for (const size_t count : {size_t{4}, size_t{2000}})
      EXPECT_EQ(reduced(c, DataType::float32, encode(DataType::float32, static_cast<float>(rank + 1)), RedOp::avg, count),
                encode(DataType::float32, static_cast<float>(n + 1) / 2))
          << n << " ranks, " << c.explain("all_reduce", count, DataType::float32, RedOp::avg);
  });
}
TEST(Rules, AveragesOfOddRankCounts) {
  for (const std::string& algorithm : all_reduce_algorithms()) {
    const Variable forced("MUSTER_ALGO", algorithm);
    for (const int n : {3, 5, 6, 7, 9, 11, 13, 15}) check_average(n);
  }
}
TEST(Rules, AveragesOfTwentyEightRanks) {
  for (const char* algorithm : {"", "ring", "doubling", "bruck"}) {
    const Variable forced("MUSTER_ALGO", algorithm);
    check_average(28);
  }
}

TEST(Rules, AveragesOnOneRankByEveryAlgorithm) {
  for (const char* algorithm : {"direct", "ring", "bruck", "binomial", "chain", "window"}) {
    const Variable forced("MUSTER_ALGO", algorithm);
    for (const int n : {7, 15})
      run_threads(n, [&](Communicator& c, int rank) {
        const auto average = static_cast<float>(n + 1) / 2;
        for (const size_t count : {size_t{4}, size_t{2000}}) {
          const std::vector<float> in(count * static_cast<size_t>(n), static_cast<float>(rank + 1));
          std::vector<float> at_root(count, -1), shard(count, -1);
          c.reduce(in.data(), at_root.data(), count, DataType::float32, RedOp::avg, n - 1);
          EXPECT_THAT(at_root, testing::Each(rank == n - 1 ? average : -1.f)) << algorithm << ", " << n << " ranks";
          c.reduce_scatter(in.data(), shard.data(), count, DataType::float32, RedOp::avg);
          EXPECT_THAT(shard, testing::Each(average)) << algorithm << ", " << n << " ranks";
        }
      });
  }
}

TEST(Rules, TwoDoublesInPlaceByEveryAlgorithm) {
  for (const std::string& algorithm : all_reduce_algorithms()) {
    const Variable forced("MUSTER_ALGO", algorithm);
    for (const int n : {4, 5, 6, 7, 8})
      run_threads(n, [&](Communicator& c, int rank) {
        double in[2] = {static_cast<double>(rank), rank ? 1.0 / rank : 0}, out[2];
        double harmonic = 0;
        for (int r = 1; r < n; ++r) harmonic += 1.0 / r;
        c.all_reduce(in, out, 2, DataType::float64, RedOp::sum);
        EXPECT_EQ(out[0], n * (n - 1) / 2) << algorithm;
        EXPECT_NEAR(out[1], harmonic, 1e-14) << algorithm;
        c.all_reduce(in, in, 2, DataType::float64, RedOp::sum);
        EXPECT_EQ(std::memcmp(in, out, sizeof in), 0) << algorithm;
      });
  }
}

}  // namespace
}  // namespace muster
