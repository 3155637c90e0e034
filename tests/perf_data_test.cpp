// The values that the *_perf programs send: exact in any order of reduction, and wrong ones are noticed.
#include "perf/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "perf/names.h"
#include "perf/numbers.h"

namespace muster::perf {
namespace {

double decode(uint64_t bits, DataType type) {
  const FloatFormat f = format_of(type);
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const uint64_t mantissa = bits & ((uint64_t{1} << f.mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> f.mantissa_bits & ((uint64_t{1} << f.exponent_bits) - 1));
  const double sign = bits >> (f.exponent_bits + f.mantissa_bits) & 1 ? -1 : 1;
  const uint64_t whole = exponent ? mantissa | uint64_t{1} << f.mantissa_bits : mantissa;
  return sign * std::ldexp(static_cast<double>(whole), std::max(exponent, 1) - bias - f.mantissa_bits);
}

uint64_t element(const std::vector<std::byte>& v, size_t i, size_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, &v[i * size], size);
  return bits;
}

// Rounds after every single operation, in a random order: the result must be the expected one all the same.
void reduce_randomly(DataType type, RedOp op, int n, size_t count, std::vector<std::byte>& result, Data& data,
                     std::mt19937& random) {
  const size_t size = size_of(type);
  std::vector<std::vector<std::byte>> inputs(static_cast<size_t>(n), std::vector<std::byte>(count * size));
  for (int r = 0; r < n; ++r)
    data.write(inputs[static_cast<size_t>(r)].data(), {.source = r, .first = 5, .count = count}, 1);
  std::vector<size_t> order(static_cast<size_t>(n));
  for (size_t i = 0; i < count; ++i) {
    for (size_t r = 0; r < order.size(); ++r) order[r] = r;
    std::shuffle(order.begin(), order.end(), random);
    uint64_t bits = 0;
    if (is_float(type)) {
      double value = 0;
      for (size_t k = 0; k < order.size(); ++k) {
        double x = decode(element(inputs[order[k]], i, size), type);
        if (op == RedOp::pre_mul_sum) {
          x *= decode(data.op_of(static_cast<int>(order[k])).scalar_bits, type);
          ASSERT_EQ(decode(encode(x, type), type), x) << "a weighted value is rounded";
        }
        if (k == 0)
          value = x;
        else if (op == RedOp::prod)
          value *= x;
        else if (op == RedOp::min)
          value = std::min(value, x);
        else if (op == RedOp::max)
          value = std::max(value, x);
        else
          value += x;
        ASSERT_EQ(decode(encode(value, type), type), value) << "a partial result is rounded, element " << i;
      }
      bits = encode(op == RedOp::avg ? value / n : value, type);
    } else {
      const int unused = static_cast<int>(64 - 8 * size);
      const auto widen = [&](uint64_t v) {
        return is_signed(type) ? static_cast<uint64_t>(static_cast<int64_t>(v << unused) >> unused)
                               : v << unused >> unused;
      };
      const auto less = [&](uint64_t a, uint64_t b) {
        return is_signed(type) ? static_cast<int64_t>(widen(a)) < static_cast<int64_t>(widen(b))
                               : widen(a) < widen(b);
      };
      for (size_t k = 0; k < order.size(); ++k) {
        uint64_t x = element(inputs[order[k]], i, size);
        if (op == RedOp::pre_mul_sum) x *= data.op_of(static_cast<int>(order[k])).scalar_bits;
        if (k == 0)
          bits = x;
        else if (op == RedOp::prod)
          bits *= x;
        else if (op == RedOp::min)
          bits = less(x, bits) ? x : bits;
        else if (op == RedOp::max)
          bits = less(bits, x) ? x : bits;
        else
          bits += x;
      }
      if (op == RedOp::avg)
        bits = is_signed(type) ? static_cast<uint64_t>(static_cast<int64_t>(widen(bits)) / n)
                               : widen(bits) / static_cast<uint64_t>(n);
    }
    std::memcpy(&result[i * size], &bits, size);
  }
}

class PerfDataOfType : public testing::TestWithParam<NamedType> {};

TEST_P(PerfDataOfType, EveryOrderGivesTheExpectedBits) {
  std::mt19937 random(1);
  const DataType type = GetParam().type;
  for (const NamedOp& op : ops())
    for (const int n : {1, 2, 3, 8, 17, 300}) {
      // More ranks than some types have room for: the types with least room, and the operators that need it.
      if (n == 300 && (size_of(type) > 2 || (op.op != RedOp::sum && op.op != RedOp::prod))) continue;
      SCOPED_TRACE(testing::Message() << op.name << " " << n << " ranks");
      Data data(type, op.op, n);
      const size_t count = n > 17 ? 40 : 400;
      std::vector<std::byte> result(count * size_of(type));
      reduce_randomly(type, op.op, n, count, result, data, random);
      ASSERT_EQ(data.count_wrong(result.data(), {.source = Content::kReduced, .first = 5, .count = count}, 1),
                0u);
      ASSERT_FALSE(HasFatalFailure());
    }
}

INSTANTIATE_TEST_SUITE_P(Types, PerfDataOfType, testing::ValuesIn(types().begin(), types().end()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(PerfData, WrongDataIsCounted) {
  for (const NamedType& type : types()) {
    SCOPED_TRACE(type.name);
    Data data(type.type, RedOp::sum, 4);
    const size_t size = size_of(type.type), count = 2 * kPeriod + 100;
    std::vector<std::byte> buffer(count * size);
    const Content content{.source = Content::kReduced, .first = 3, .count = count};
    data.write(buffer.data(), content, 2);
    EXPECT_EQ(data.count_wrong(buffer.data(), content, 2), 0u);
    for (const size_t i : {size_t{0}, kPeriod - 4, kPeriod + 7, count - 1}) buffer[i * size] ^= std::byte{1};
    EXPECT_EQ(data.count_wrong(buffer.data(), content, 2), 4u);
    // Another place, another run, another rank's data, or nothing written: nearly all is wrong.
    data.write(buffer.data(), content, 2);
    const size_t most = count / 2;
    EXPECT_GT(data.count_wrong(buffer.data(), {.source = Content::kReduced, .first = 4, .count = count}, 2),
              most);
    EXPECT_GT(data.count_wrong(buffer.data(), content, 3), most);
    EXPECT_GT(data.count_wrong(buffer.data(), {.source = 0, .first = 3, .count = count}, 2), most);
    EXPECT_EQ(
        data.count_wrong(buffer.data(), {.source = Content::kUntouched, .first = 0, .count = 100}, 2) > 90,
        true);
    Data::poison(buffer.data(), buffer.size());
    EXPECT_GT(data.count_wrong(buffer.data(), content, 2), most);
    EXPECT_EQ(data.count_wrong(buffer.data(), {.source = Content::kUntouched, .first = 0, .count = count}, 2),
              0u);
  }
}

TEST(PerfData, EncodesAsTheFormatsSay) {
  EXPECT_EQ(encode(1, DataType::float16), 0x3c00u);
  EXPECT_EQ(encode(-2, DataType::bfloat16), 0xc000u);
  EXPECT_EQ(encode(65504, DataType::float16), 0x7bffu);
  EXPECT_EQ(encode(65520, DataType::float16), 0x7c00u) << "infinity";
  EXPECT_EQ(encode(std::ldexp(1, -24), DataType::float16), 1u) << "the smallest subnormal";
  EXPECT_EQ(encode(1 + std::ldexp(1, -11), DataType::float16), 0x3c00u) << "a tie goes to even";
  EXPECT_EQ(encode(448, DataType::float8_e4m3), 0x7eu);
  EXPECT_EQ(encode(1e9, DataType::float8_e4m3), 0x7eu) << "saturates";
  EXPECT_EQ(encode(-1e9, DataType::float8_e5m2), 0xfbu) << "saturates";
  EXPECT_EQ(encode(-0.0, DataType::float32), 0x80000000u);
  std::mt19937 random(2);
  for (int i = 0; i < 100000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    float f;
    std::memcpy(&f, &bits, 4);
    if (std::isfinite(f)) {
      ASSERT_EQ(encode(f, DataType::float32), bits);
    }
  }
  for (const DataType t :
       {DataType::float16, DataType::bfloat16, DataType::float8_e4m3, DataType::float8_e5m2})
    for (uint64_t bits = 0; bits < uint64_t{1} << (8 * size_of(t)); ++bits) {
      const FloatFormat f = format_of(t);
      const uint64_t exponent = bits >> f.mantissa_bits & ((uint64_t{1} << f.exponent_bits) - 1);
      const bool finite = t == DataType::float8_e4m3 ? (bits & 0x7f) != 0x7f
                                                     : exponent != (uint64_t{1} << f.exponent_bits) - 1;
      if (finite) {
        ASSERT_EQ(encode(decode(bits, t), t), bits);
      }
    }
  EXPECT_EQ(ulps_between(0x3c00, 0x3c02, DataType::float16), 2u);
  EXPECT_EQ(ulps_between(0x8001, 0x0001, DataType::float16), 2u) << "across zero";
  EXPECT_GT(ulps_between(0x7e00, 0x3c00, DataType::float16), 1000000u) << "not a number";
}

}  // namespace
}  // namespace muster::perf
