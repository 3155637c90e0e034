// 16-bit floats against all their values, and int8 blocks against their error bound.
#include "parallel/block_quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels_reference.h"
#include "parallel/element_type.h"
#include "parallel/half_float.h"

namespace muster {
namespace {

template <class E>
void check_all_values(DataType type) {
  const reference::Format format(type);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const E e{static_cast<uint16_t>(bits)};
    const float x = to_float(e), want = format.decode(bits);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(x)) << bits;
      ASSERT_TRUE(std::isnan(to_float(from_float<E>(x)))) << bits;
      continue;
    }
    ASSERT_EQ(x, want) << bits;
    ASSERT_EQ(from_float<E>(x).bits, bits);
    // Halfway to the next value of a finite one: to the even of both; just beside it, to the nearer.
    if ((bits & 0x7fff) + 1 >= format.infinity()) continue;
    const float next = to_float(E{static_cast<uint16_t>(bits + 1)}), half = x + (next - x) / 2;
    ASSERT_EQ(from_float<E>(half).bits, bits % 2 ? bits + 1 : bits) << x;
    ASSERT_EQ(from_float<E>(std::nextafter(half, x)).bits, bits);
    ASSERT_EQ(from_float<E>(std::nextafter(half, next)).bits, bits + 1);
  }
}

TEST(HalfFloat, AllValuesOfFloat16) {
  check_all_values<Float16>(DataType::float16);
  EXPECT_EQ(to_float(from_float<Float16>(65519.99f)), 65504);
  EXPECT_EQ(to_float(from_float<Float16>(-65520)), -std::numeric_limits<float>::infinity());
}
TEST(HalfFloat, AllValuesOfBFloat16) {
  check_all_values<BFloat16>(DataType::bfloat16);
  EXPECT_EQ(to_float(from_float<BFloat16>(std::numeric_limits<float>::max())),
            std::numeric_limits<float>::infinity());
}

TEST(BlockQuantise, ErrorIsBounded) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const DataType type : {DataType::float16, DataType::bfloat16, DataType::float32})
    for (const size_t n : {0, 1, 255, 256, 257, 1000})
      with_element(type, [&]<class E>() {
        constexpr size_t kBlock = 256;
        std::vector<E> x(n), back(n);
        for (size_t i = 0; i < n; ++i)
          x[i] = from_float<E>(normal(random) * (i / kBlock == 1 ? 100.0f : 0.01f));
        std::vector<float> packed(quantised_bytes(n, kBlock) / sizeof(float));
        EXPECT_EQ(quantised_bytes(n, kBlock), (n + 3) / 4 * 4 + (n + 255) / 256 * 4);
        quantise(x.data(), type, n, kBlock, packed.data());
        dequantise(packed.data(), type, n, kBlock, back.data());
        const float half_ulp = type == DataType::bfloat16  ? 0x1p-9f
                               : type == DataType::float16 ? 0x1p-12f
                                                           : 0x1p-24f;
        for (size_t begin = 0; begin < n; begin += kBlock) {
          float most = 0;
          for (size_t i = begin; i < std::min(n, begin + kBlock); ++i)
            most = std::max(most, std::fabs(to_float(x[i])));
          for (size_t i = begin; i < std::min(n, begin + kBlock); ++i)
            ASSERT_LE(std::fabs(to_float(back[i]) - to_float(x[i])),
                      most / 254 * (1 + 0x1p-16f) + most * half_ulp + 0x1p-25f)
                << name_of(type) << " " << i;
        }
      });
}

TEST(BlockQuantise, WhatIsNoNumberIsSeen) {
  const float bad[] = {1, std::numeric_limits<float>::infinity(), 3, 4, 5};
  float back[5], packed[4];
  ASSERT_EQ(quantised_bytes(5, 4), sizeof(packed));
  quantise(bad, DataType::float32, 5, 4, packed);
  dequantise(packed, DataType::float32, 5, 4, back);
  EXPECT_TRUE(std::isnan(back[0]));
  EXPECT_EQ(back[4], 5);
}

}  // namespace
}  // namespace muster
