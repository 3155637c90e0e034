// Every host kernel on every instruction set of this machine, element by element against kernels_reference.h.
#include "device/host/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels_reference.h"

namespace muster {
namespace {

using reference::Reduction;
using testing::Each;

constexpr RedOp kBaseOps[] = {RedOp::sum, RedOp::prod, RedOp::max, RedOp::min};
constexpr RedOp kBitOps[] = {RedOp::bit_and,     RedOp::bit_or,     RedOp::bit_xor,
                             RedOp::logical_and, RedOp::logical_or, RedOp::logical_xor};

// All that combine elements without weights and divisors.
std::vector<RedOp> plain_ops(DataType t) {
  std::vector<RedOp> ops(std::begin(kBaseOps), std::end(kBaseOps));
  for (RedOp op : kBitOps)
    if (is_defined(op, t)) ops.push_back(op);
  return ops;
}

std::vector<DataType> all_types() {
  std::vector<DataType> r;
  for (int i = 0; i < kDataTypes; ++i) r.push_back(static_cast<DataType>(i));
  return r;
}

std::string type_name(const testing::TestParamInfo<DataType>& t) { return name_of(t.param); }

uint64_t load(const uint8_t* p, size_t size) {
  uint64_t x = 0;
  std::memcpy(&x, p, size);
  return x;
}

// A random element: any bits at all, or a value of ordinary size so that sums and products stay interesting.
// For logical operations zeros of both signs and NaNs are frequent.
uint64_t random_element(DataType t, std::mt19937_64& rng, RedOp op = RedOp::sum) {
  const uint64_t bits = rng();
  if (reference::is_logical(op) && bits % 8 < 6) {
    const bool is_float = !reference::is_integer(t);
    const uint64_t sign = is_float ? uint64_t{1} << (8 * size_of(t) - 1) : 0;
    return bits % 8 == 0 && is_float ? sign - 1 : bits % 8 < 4 ? 0 : sign;
  }
  const uint64_t mask = ~uint64_t{0} >> (64 - 8 * size_of(t));
  if (reference::is_integer(t) || bits % 4 == 0) return (bits >> 2) & mask;
  const double x = std::uniform_real_distribution<double>(-8, 8)(rng);
  if (t == DataType::float64) return std::bit_cast<uint64_t>(x);
  if (t == DataType::float32) return std::bit_cast<uint32_t>(static_cast<float>(x));
  return reference::format(t).encode(static_cast<float>(x));
}

// `bytes` usable bytes at `offset` from a 64-byte boundary, surrounded by bytes that must not change.
class Guarded {
 public:
  Guarded(size_t bytes, size_t offset) : bytes_(bytes), memory_(bytes + 256, kCanary) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data()) + 64;
    begin_ = memory_.data() + 64 + (64 - address % 64) % 64 + offset;
  }
  uint8_t* data() { return begin_; }
  bool intact() const {
    for (const uint8_t* p = memory_.data(); p < memory_.data() + memory_.size(); ++p) {
      if ((p < begin_ || p >= begin_ + bytes_) && *p != kCanary) return false;
    }
    return true;
  }

 private:
  static constexpr uint8_t kCanary = 0xa5;
  size_t bytes_;
  std::vector<uint8_t> memory_;
  uint8_t* begin_;
};

struct Shape {
  uint32_t nsources, ndestinations;
  size_t count;
  bool aligned = true, in_place = false;
  uint64_t streamed = 0;
};

// Runs one kernel of every target and compares everything it wrote.
void check(const Reduction& r, const Shape& s, std::mt19937_64& rng) {
  const size_t size = size_of(r.type), bytes = s.count * size;
  std::vector<std::vector<uint8_t>> inputs(s.nsources, std::vector<uint8_t>(bytes + 1));
  std::vector<uint64_t> expected(s.count), column(s.nsources);
  for (size_t i = 0; i < s.count; ++i) {
    for (uint32_t j = 0; j < s.nsources; ++j) {
      column[j] = random_element(r.type, rng, r.op);
      std::memcpy(inputs[j].data() + i * size, &column[j], size);
    }
    expected[i] = reference::reduce(r, column);
  }
  const auto offset = [&] { return s.aligned ? 0 : rng() % 64; };
  for (int target = 0; target < kernel_target_count(); ++target) {
    std::vector<Guarded> from, to;
    for (const auto& in : inputs) {
      from.emplace_back(bytes, offset());
      std::memcpy(from.back().data(), in.data(), bytes);
    }
    for (uint32_t d = 0; d < s.ndestinations; ++d) to.emplace_back(bytes, offset());
    std::vector<const void*> sources;
    std::vector<void*> destinations;
    for (auto& g : from) sources.push_back(g.data());
    for (auto& g : to) destinations.push_back(g.data());
    const uint32_t reused = s.in_place ? static_cast<uint32_t>(rng() % s.nsources) : 0;
    if (s.in_place) destinations.back() = from[reused].data();

    ReduceArgs args;
    args.sources = sources.data();
    args.nsources = s.nsources;
    args.destinations = destinations.data();
    args.ndestinations = s.ndestinations;
    args.count = s.count;
    args.weighted = r.weighted;
    args.weight_bits = r.weight;
    args.divisor = r.divisor;
    args.streamed = s.streamed;
    reduce_kernel_of_target(target, r.type, r.op)(args);

    const auto where = [&] {
      return std::string(kernel_target_name(target)) + " " + name_of(r.type) + " " + name_of(r.op) +
             ", sources " + std::to_string(s.nsources) + ", destinations " + std::to_string(s.ndestinations) +
             ", count " + std::to_string(s.count) + (s.aligned ? "" : ", unaligned") +
             (s.in_place ? ", in place" : "") + ", divisor " + std::to_string(r.divisor) + ", weighted " +
             std::to_string(r.weighted);
    };
    for (uint32_t d = 0; d < s.ndestinations; ++d) {
      const auto* const got = static_cast<const uint8_t*>(destinations[d]);
      for (size_t i = 0; i < s.count; ++i) {
        const uint64_t x = load(got + i * size, size);
        if (!reference::same(r.type, x, expected[i])) {
          for (uint32_t j = 0; j < s.nsources; ++j) column[j] = load(inputs[j].data() + i * size, size);
          FAIL() << where() << ": element " << i << " of destination " << d << " is " << std::hex << x
                 << ", not " << expected[i] << "; inputs " << testing::PrintToString(column);
        }
      }
    }
    for (uint32_t j = 0; j < s.nsources; ++j) {
      ASSERT_TRUE(from[j].intact()) << where() << ": wrote outside";
      if (s.in_place && j == reused) continue;
      ASSERT_EQ(std::memcmp(from[j].data(), inputs[j].data(), bytes), 0) << where() << ": wrote source " << j;
    }
    for (const auto& g : to) ASSERT_TRUE(g.intact()) << where() << ": wrote outside";
  }
}

class Kernels : public testing::TestWithParam<DataType> {
 protected:
  std::mt19937_64 rng{static_cast<uint64_t>(GetParam()) + 1};
};
INSTANTIATE_TEST_SUITE_P(Types, Kernels, testing::ValuesIn(all_types()), type_name);

TEST_P(Kernels, EveryOpSourceAndDestinationCount) {
  std::vector<size_t> counts = {0, 255, 1000};
  for (size_t n = 1; n <= 70; ++n) counts.push_back(n);
  for (RedOp op : plain_ops(GetParam())) {
    for (uint32_t nsources = 1; nsources <= 9; ++nsources) {
      for (size_t count : counts) {
        const uint32_t ndestinations = 1 + static_cast<uint32_t>((count + nsources) % 3);
        check({GetParam(), op}, {nsources, ndestinations, count, count % 4 == 0}, rng);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Kernels, CommonShapesAtEveryCountAndAlignment) {
  for (uint32_t nsources : {1u, 2u, 3u}) {
    for (uint32_t ndestinations : {1u, 2u, 3u}) {
      for (size_t count = 0; count <= 300; count += 1 + count / 40) {
        for (bool aligned : {true, false}) {
          check({GetParam(), RedOp::sum}, {nsources, ndestinations, count, aligned}, rng);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Kernels, InPlace) {
  for (RedOp op : plain_ops(GetParam())) {
    for (uint32_t nsources : {1u, 2u, 3u, 5u}) {
      for (uint32_t ndestinations : {1u, 2u}) {
        for (size_t count : {1u, 2u, 7u, 16u, 31u, 64u, 100u, 257u, 1000u}) {
          for (uint64_t streamed : {0u, 3u}) {
            check({GetParam(), op}, {nsources, ndestinations, count, false, true, streamed}, rng);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(Kernels, Streamed) {
  for (uint32_t ndestinations : {1u, 2u, 3u}) {
    for (uint64_t streamed = 1; streamed < 1u << ndestinations; ++streamed) {
      for (size_t count : {1u, 3u, 16u, 63u, 64u, 65u, 130u, 517u, 2000u}) {
        for (bool aligned : {true, false}) {
          for (uint32_t nsources : {1u, 2u, 4u}) {
            for (RedOp op : {RedOp::sum, RedOp::logical_or})
              check({GetParam(), op}, {nsources, ndestinations, count, aligned, false, streamed}, rng);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(Kernels, AverageDividesTheSumOnce) {
  for (uint32_t divisor :
       {1u, 2u, 3u, 7u, 9u, 127u, 128u, 255u, 256u, 1000u, 65537u, 2147483648u, 4294967295u}) {
    for (uint32_t nsources : {1u, 2u, 3u, 8u}) {
      for (size_t count : {1u, 5u, 70u, 300u}) {
        check({GetParam(), RedOp::avg, 0, 0, divisor}, {nsources, 1 + nsources % 3, count, false}, rng);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Kernels, WeightsMultiplyTheSourcesTheyAreMeantFor) {
  for (int i = 0; i < 20; ++i) {
    for (uint32_t nsources : {1u, 2u, 3u, 8u}) {
      for (size_t count : {1u, 5u, 70u, 300u}) {
        const uint64_t weighted = i == 0 ? ~uint64_t{0} : rng();
        const Reduction r{GetParam(), RedOp::pre_mul_sum, weighted, random_element(GetParam(), rng),
                          i % 4 == 3 ? nsources : 0};
        check(r, {nsources, 1 + nsources % 3, count, false}, rng);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Kernels, MoreThan64Sources) {
  for (RedOp op : plain_ops(GetParam())) check({GetParam(), op}, {70, 66, 37, false}, rng);
  check({GetParam(), RedOp::pre_mul_sum, ~uint64_t{0}, random_element(GetParam(), rng)}, {66, 1, 37, false},
        rng);
}

// Reads and writes next to pages that can't be touched.
TEST_P(Kernels, TouchesNothingOutsideTheElements) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = size_of(GetParam());
  std::vector<uint8_t*> pages;
  for (int i = 0; i < 3; ++i) {
    void* const p = mmap(nullptr, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(p, MAP_FAILED);
    ASSERT_EQ(mprotect(static_cast<uint8_t*>(p) + page, page, PROT_READ | PROT_WRITE), 0);
    pages.push_back(static_cast<uint8_t*>(p) + page);
  }
  for (size_t count = 1; count * size <= 400; ++count) {
    for (bool at_end : {false, true}) {
      const size_t at = at_end ? page - count * size : 0;
      const void* sources[] = {pages[0] + at, pages[1] + at};
      void* destinations[] = {pages[2] + at};
      for (int target = 0; target < kernel_target_count(); ++target) {
        for (uint64_t streamed : {0u, 1u}) {
          reduce_kernel_of_target(target, GetParam(), RedOp::sum)({.sources = sources,
                                                                   .nsources = 2,
                                                                   .destinations = destinations,
                                                                   .ndestinations = 1,
                                                                   .count = count,
                                                                   .streamed = streamed});
        }
      }
    }
  }
  for (uint8_t* p : pages) munmap(p - page, 3 * page);
}

// One kernel call on all targets, on whole arrays; every target must give the same elements.
template <class T>
std::vector<T> reduce_all(DataType type, RedOp op, const std::vector<std::vector<T>>& in,
                          uint32_t divisor = 0, uint64_t weighted = 0, uint64_t weight = 0) {
  std::vector<const void*> sources;
  for (const auto& v : in) sources.push_back(v.data());
  std::vector<T> first;
  for (int target = 0; target < kernel_target_count(); ++target) {
    std::vector<T> out(in[0].size());
    void* destination = out.data();
    reduce_kernel_of_target(target, type, op)({.sources = sources.data(),
                                               .nsources = static_cast<uint32_t>(in.size()),
                                               .destinations = &destination,
                                               .ndestinations = 1,
                                               .count = out.size(),
                                               .weighted = weighted,
                                               .weight_bits = weight,
                                               .divisor = divisor});
    if (target == 0) {
      first = out;
    } else {
      for (size_t i = 0; i < out.size(); ++i) {
        uint64_t a = 0, b = 0;
        std::memcpy(&a, &first[i], sizeof(T));
        std::memcpy(&b, &out[i], sizeof(T));
        EXPECT_TRUE(reference::same(type, a, b)) << kernel_target_name(target) << " element " << i;
        if (testing::Test::HasNonfatalFailure()) return first;
      }
    }
  }
  return first;
}

class Float8 : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(Types, Float8, testing::Values(DataType::float8_e4m3, DataType::float8_e5m2),
                         type_name);

TEST_P(Float8, AllPairs) {
  std::vector<uint8_t> a(65536), b(65536);
  for (int i = 0; i < 65536; ++i) {
    a[i] = static_cast<uint8_t>(i >> 8);
    b[i] = static_cast<uint8_t>(i);
  }
  for (RedOp op : kBaseOps) {
    const auto got = reduce_all<uint8_t>(GetParam(), op, {a, b});
    for (int i = 0; i < 65536; ++i) {
      const uint64_t want = reference::reduce({GetParam(), op}, {a[i], b[i]});
      ASSERT_TRUE(reference::same(GetParam(), got[i], want)) << name_of(op) << " of " << std::hex << i;
    }
  }
}

TEST_P(Float8, SumsOfFiniteNumbersSaturate) {
  const auto& f = reference::format(GetParam());
  const auto code = [&](float x) { return static_cast<uint8_t>(f.encode(x)); };
  const auto sum = [&](uint8_t a, uint8_t b) {
    return f.decode(reduce_all<uint8_t>(GetParam(), RedOp::sum, {{a}, {b}})[0]);
  };
  if (GetParam() == DataType::float8_e4m3) {
    EXPECT_EQ(sum(code(448), code(18)), 448.0f);
    EXPECT_EQ(sum(code(-448), code(-448)), -448.0f);
    EXPECT_TRUE(std::isnan(sum(0x7f, code(1))));
    EXPECT_TRUE(std::isnan(sum(0xff, code(1))));
  } else {
    EXPECT_EQ(sum(code(57344), code(4096)), 57344.0f);
    EXPECT_EQ(sum(code(-57344), code(-57344)), -57344.0f);
    EXPECT_EQ(sum(code(INFINITY), code(-57344)), INFINITY);
    EXPECT_TRUE(std::isnan(sum(code(INFINITY), code(-INFINITY))));
  }
}

TEST_P(Float8, ProductsThatOverflowFloat32Saturate) {
  const auto& f = reference::format(GetParam());
  const auto code = [&](float x) { return static_cast<uint8_t>(f.encode(x)); };
  std::vector<std::vector<uint8_t>> in(20, {code(448), code(-448), code(448)});
  in.back()[2] = 0;  // overflow first, then times zero: not NaN
  const auto got = reduce_all<uint8_t>(GetParam(), RedOp::prod, in);
  const float largest = f.finite.back();
  EXPECT_EQ(f.decode(got[0]), largest);
  EXPECT_EQ(f.decode(got[1]), largest);
  EXPECT_EQ(f.decode(got[2]), 0.0f);
}

class Narrow : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(Types, Narrow, testing::Values(DataType::float16, DataType::bfloat16), type_name);

TEST_P(Narrow, AllValuesSurviveAndRoundToNearestEven) {
  std::vector<uint16_t> all(65536);
  for (int i = 0; i < 65536; ++i) all[i] = static_cast<uint16_t>(i);
  for (uint32_t divisor : {0u, 2u, 3u, 7u, 1000u, 1u << 20}) {
    const auto got = reduce_all<uint16_t>(GetParam(), RedOp::avg, {all}, divisor);
    for (int i = 0; i < 65536; ++i) {
      const Reduction r{GetParam(), RedOp::avg, 0, 0, divisor};
      const uint64_t want = divisor == 0 ? all[i] : reference::reduce(r, {all[i]});
      ASSERT_TRUE(reference::same(GetParam(), got[i], want)) << std::hex << i << " over " << divisor;
    }
  }
}

// Each value plus half a unit in its last place is a tie, exact in float32.
TEST_P(Narrow, TiesGoToEven) {
  const auto& f = reference::format(GetParam());
  std::vector<uint16_t> value, half;
  for (size_t i = 0; i + 1 < f.finite.size(); ++i) {
    const float h = (f.finite[i + 1] - f.finite[i]) / 2;
    if (f.decode(f.encode(h)) != h) continue;  // too small for the format
    value.push_back(static_cast<uint16_t>(i));
    half.push_back(static_cast<uint16_t>(f.encode(h)));
  }
  const auto got = reduce_all<uint16_t>(GetParam(), RedOp::sum, {value, half});
  for (size_t i = 0; i < value.size(); ++i) ASSERT_EQ(got[i], value[i] + value[i] % 2);
}

template <class T>
std::vector<std::vector<T>> columns(const std::vector<T>& values, size_t count = 100) {
  std::vector<std::vector<T>> r;
  for (T v : values) r.emplace_back(count, v);
  return r;
}
uint16_t f16(float x) { return static_cast<uint16_t>(reference::format(DataType::float16).encode(x)); }
uint16_t bf16(float x) { return static_cast<uint16_t>(reference::format(DataType::bfloat16).encode(x)); }

TEST(Rules, IntegersWrap) {
  EXPECT_THAT(reduce_all<int8_t>(DataType::int8, RedOp::sum, columns<int8_t>({120, 100})), Each(-36));
  EXPECT_THAT(reduce_all<uint8_t>(DataType::uint8, RedOp::sum, columns<uint8_t>({200, 100})), Each(44));
  EXPECT_THAT(reduce_all<uint8_t>(DataType::uint8, RedOp::sum, columns(std::vector<uint8_t>(256, 1))),
              Each(0));
  EXPECT_THAT(reduce_all<int64_t>(DataType::int64, RedOp::prod, columns<int64_t>({int64_t{1} << 33, -3})),
              Each(-3 * (int64_t{1} << 33)));
}

TEST(Rules, IntegerAverageTruncatesTowardZero) {
  EXPECT_THAT(reduce_all<int32_t>(DataType::int32, RedOp::avg, columns<int32_t>({1, 2, 2}, 7), 3), Each(1));
  EXPECT_THAT(reduce_all<int32_t>(DataType::int32, RedOp::avg, columns<int32_t>({-1, -2, -2}, 7), 3),
              Each(-1));
  EXPECT_THAT(reduce_all<int8_t>(DataType::int8, RedOp::avg, columns<int8_t>({-128}), 1), Each(-128));
  EXPECT_THAT(reduce_all<int8_t>(DataType::int8, RedOp::avg, columns<int8_t>({-128}), 128), Each(-1));
}

TEST(Rules, FloatAverage) {
  EXPECT_THAT(reduce_all<float>(DataType::float32, RedOp::avg, columns<float>({1, 2, 3}, 7), 3), Each(2.0f));
}

TEST(Rules, Float16SumOverflowsOnlyWhenStored) {
  EXPECT_THAT(
      reduce_all<uint16_t>(DataType::float16, RedOp::sum, columns<uint16_t>({f16(65504), f16(65504)})),
      Each(0x7c00));
  const std::vector<uint16_t> eight(8, f16(60000));
  EXPECT_THAT(reduce_all<uint16_t>(DataType::float16, RedOp::avg, columns(eight), 8), Each(f16(60000)));
  const std::vector<uint16_t> many(64, f16(6e-8f));
  EXPECT_THAT(reduce_all<uint16_t>(DataType::float16, RedOp::avg, columns(many), 64), Each(f16(6e-8f)));
}

TEST(Rules, Bfloat16SumRoundsOnce) {
  std::vector<uint16_t> in(8, bf16(1));
  in[0] = bf16(256);
  EXPECT_THAT(reduce_all<uint16_t>(DataType::bfloat16, RedOp::sum, columns(in)), Each(bf16(264)));
}

TEST(Rules, SourcesAreCombinedLeftToRight) {
  EXPECT_THAT(reduce_all<float>(DataType::float32, RedOp::sum, columns<float>({1e8f, 1, -1e8f, 1})),
              Each(1.0f));
  EXPECT_THAT(reduce_all<float>(DataType::float32, RedOp::sum, columns<float>({1e8f, -1e8f, 1, 1})),
              Each(2.0f));
}

// A product and a sum, each rounded: a fused multiply-add would give 2^-46 more.
TEST(Rules, WeightedSumIsNotFused) {
  const float w = 1 + std::ldexp(1.0f, -23);
  EXPECT_THAT(reduce_all<float>(DataType::float32, RedOp::pre_mul_sum, columns<float>({-1, w}), 0, 2,
                                std::bit_cast<uint32_t>(w)),
              Each(std::ldexp(1.0f, -22)));
}

TEST(Rules, NanAnywhereGivesNan) {
  for (DataType t : all_types()) {
    if (reference::is_integer(t)) continue;
    const uint64_t nan = t == DataType::float64   ? std::bit_cast<uint64_t>(std::nan(""))
                         : t == DataType::float32 ? std::bit_cast<uint32_t>(std::nanf(""))
                                                  : reference::format(t).nan();
    const size_t size = size_of(t);
    for (RedOp op : kBaseOps) {
      for (uint32_t nsources = 1; nsources <= 5; ++nsources) {
        for (uint32_t where = 0; where < nsources; ++where) {
          for (int target = 0; target < kernel_target_count(); ++target) {
            constexpr size_t kCount = 70;
            std::vector<std::vector<uint8_t>> in(nsources, std::vector<uint8_t>(kCount * size, 0));
            for (size_t i = 0; i < kCount; ++i) std::memcpy(in[where].data() + i * size, &nan, size);
            std::vector<const void*> sources;
            for (const auto& v : in) sources.push_back(v.data());
            std::vector<uint8_t> out(kCount * size);
            void* to = out.data();
            reduce_kernel_of_target(target, t, op)({.sources = sources.data(),
                                                    .nsources = nsources,
                                                    .destinations = &to,
                                                    .ndestinations = 1,
                                                    .count = kCount});
            for (size_t i = 0; i < kCount; ++i) {
              ASSERT_TRUE(reference::is_nan(t, load(out.data() + i * size, size)))
                  << kernel_target_name(target) << " " << name_of(t) << " " << name_of(op) << " at " << where;
            }
          }
        }
      }
    }
  }
}

TEST(Rules, ZerosAreOrdered) {
  for (const auto& in : {columns<float>({-0.0f, 0.0f}), columns<float>({0.0f, -0.0f})}) {
    for (float x : reduce_all<float>(DataType::float32, RedOp::max, in)) EXPECT_FALSE(std::signbit(x));
    for (float x : reduce_all<float>(DataType::float32, RedOp::min, in)) EXPECT_TRUE(std::signbit(x));
  }
}

// Truth is what C's != 0 says of the value.
TEST(Rules, WhatIsTrue) {
  const auto or_of = [](float x) {
    return reduce_all<float>(DataType::float32, RedOp::logical_or, columns<float>({x, 0}, 70));
  };
  for (const float yes : {1.0f, -3.5f, 1e-45f, -INFINITY, std::nanf("")}) EXPECT_THAT(or_of(yes), Each(1.0f));
  for (const float no : {0.0f, -0.0f})
    EXPECT_THAT(or_of(no),
                testing::AllOf(Each(0.0f),
                               Each(testing::Not(testing::Truly([](float x) { return std::signbit(x); })))));
  EXPECT_THAT(reduce_all<int8_t>(DataType::int8, RedOp::logical_and, columns<int8_t>({-128, 2, 64})),
              Each(1));
  EXPECT_THAT(
      reduce_all<int64_t>(DataType::int64, RedOp::logical_xor, columns<int64_t>({int64_t{1} << 40, 5, -1})),
      Each(1));
  EXPECT_THAT(reduce_all<uint32_t>(DataType::uint32, RedOp::logical_xor, columns<uint32_t>({1u << 31, 5})),
              Each(0u));
  EXPECT_THAT(reduce_all<uint8_t>(DataType::uint8, RedOp::logical_and, columns<uint8_t>({7})), Each(1))
      << "one source";
}

TEST(Rules, BitsOfSignedAndUnsigned) {
  EXPECT_THAT(reduce_all<int32_t>(DataType::int32, RedOp::bit_and, columns<int32_t>({-2, 0x7f, -1})),
              Each(0x7e));
  EXPECT_THAT(reduce_all<uint8_t>(DataType::uint8, RedOp::bit_or, columns<uint8_t>({0x80, 1, 0x10})),
              Each(0x91));
  EXPECT_THAT(reduce_all<int64_t>(DataType::int64, RedOp::bit_xor, columns<int64_t>({-1, 1, -1})), Each(1));
}

// Programs combine partial results in any grouping and order: bit and logical operations give the same bits
// in all.
TEST_P(Kernels, BitOperationsAreAssociativeAndCommutative) {
  constexpr size_t kCount = 333, kSources = 7;
  const size_t size = size_of(GetParam());
  for (RedOp op : kBitOps) {
    if (!is_defined(op, GetParam())) continue;
    const auto combine = [&](const std::vector<std::vector<uint8_t>>& in) {
      std::vector<const void*> sources;
      for (const auto& v : in) sources.push_back(v.data());
      std::vector<uint8_t> out(kCount * size);
      void* to = out.data();
      reduce_kernel(GetParam(), op)({.sources = sources.data(),
                                     .nsources = static_cast<uint32_t>(in.size()),
                                     .destinations = &to,
                                     .ndestinations = 1,
                                     .count = kCount});
      return out;
    };
    std::vector<std::vector<uint8_t>> in(kSources, std::vector<uint8_t>(kCount * size));
    for (auto& v : in)
      for (size_t i = 0; i < kCount; ++i) {
        const uint64_t x = random_element(GetParam(), rng, op);
        std::memcpy(&v[i * size], &x, size);
      }
    const auto whole = combine(in);
    for (int round = 0; round < 20; ++round) {
      auto parts = in;
      std::shuffle(parts.begin(), parts.end(), rng);
      while (parts.size() > 1) {  // any two to four neighbours become one
        const size_t first = rng() % (parts.size() - 1),
                     n = std::min<size_t>(2 + rng() % 3, parts.size() - first);
        const auto begin = parts.begin() + static_cast<std::ptrdiff_t>(first),
                   end = begin + static_cast<std::ptrdiff_t>(n);
        const auto combined = combine({begin, end});
        *begin = combined;
        parts.erase(begin + 1, end);
      }
      ASSERT_EQ(parts[0], whole) << name_of(op);
    }
  }
}

TEST(Dispatch, BestKernelAndErrors) {
  ASSERT_GE(kernel_target_count(), 1);
  for (DataType t : all_types()) {
    for (int i = 0; i < kRedOps; ++i) {
      const auto op = static_cast<RedOp>(i);
      if (!is_defined(op, t)) {
        EXPECT_THROW(reduce_kernel(t, op), Error) << name_of(op) << ' ' << name_of(t);
        continue;
      }
      EXPECT_EQ(reduce_kernel(t, op), reduce_kernel_of_target(0, t, op));
      EXPECT_NE(reduce_kernel(t, op), nullptr);
    }
  }
  EXPECT_THROW(reduce_kernel(static_cast<DataType>(12), RedOp::sum), Error);
  EXPECT_THROW(reduce_kernel(DataType::float32, static_cast<RedOp>(kRedOps)), Error);
  EXPECT_THROW(reduce_kernel_of_target(kernel_target_count(), DataType::float32, RedOp::sum), Error);
}

TEST(Copy, EverySizeAlignmentAndStreaming) {
  std::mt19937_64 rng(7);
  std::vector<size_t> sizes = {255, 256, 1000, 4096, 4099, 16384, 16385, 70001};
  for (size_t n = 0; n <= 200; ++n) sizes.push_back(n);
  for (size_t bytes : sizes) {
    for (uint32_t ndestinations = 1; ndestinations <= 3; ++ndestinations) {
      for (uint64_t streamed = 0; streamed < 1u << ndestinations; ++streamed) {
        Guarded from(bytes, rng() % 64);
        for (size_t i = 0; i < bytes; ++i) from.data()[i] = static_cast<uint8_t>(rng());
        const std::vector<uint8_t> want(from.data(), from.data() + bytes);
        std::vector<Guarded> to;
        std::vector<void*> destinations;
        for (uint32_t d = 0; d < ndestinations; ++d) to.emplace_back(bytes, rng() % 64);
        for (auto& g : to) destinations.push_back(g.data());
        if (bytes % 3 == 2) destinations.back() = from.data();
        copy_kernel(destinations.data(), ndestinations, from.data(), bytes, streamed);
        for (const void* p : destinations) {
          ASSERT_EQ(bytes == 0 ? 0 : std::memcmp(p, want.data(), bytes), 0) << bytes << " bytes";
        }
        ASSERT_TRUE(from.intact());
        for (const auto& g : to) ASSERT_TRUE(g.intact()) << bytes << " bytes";
      }
    }
  }
}

}  // namespace
}  // namespace muster
