#include "perf/numbers.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace muster::perf {
namespace {
constexpr uint64_t ones(int bits) { return (uint64_t{1} << bits) - 1; }
}  // namespace

FloatFormat format_of(DataType type) {
  switch (type) {
    case DataType::float16:
      return {5, 10};
    case DataType::bfloat16:
      return {8, 7};
    case DataType::float32:
      return {8, 23};
    case DataType::float64:
      return {11, 52};
    case DataType::float8_e4m3:
      return {4, 3};
    case DataType::float8_e5m2:
      return {5, 2};
    default:
      return {};
  }
}

bool is_float(DataType type) { return format_of(type).exponent_bits != 0; }
bool is_signed(DataType type) {
  return is_float(type) || type == DataType::int8 || type == DataType::int32 || type == DataType::int64;
}

uint64_t encode(double value, DataType type) {
  const FloatFormat f = format_of(type);
  if (f.exponent_bits == 0) throw std::logic_error("encode: not a float");
  const int bias = static_cast<int>(ones(f.exponent_bits - 1));
  const uint64_t sign = uint64_t{std::signbit(value)} << (f.exponent_bits + f.mantissa_bits);
  const double magnitude = std::abs(value);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);  // below it: subnormal, same spacing
  const double steps = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  // The leading one of `steps`, where there is one, counts as one in the exponent's field.
  uint64_t bits =
      static_cast<uint64_t>(steps) + (static_cast<uint64_t>(exponent + bias - 1) << f.mantissa_bits);
  if (type == DataType::float8_e4m3) bits = std::min<uint64_t>(bits, 0x7e);
  if (type == DataType::float8_e5m2) bits = std::min<uint64_t>(bits, 0x7b);
  return sign |
         std::min(bits, ones(f.exponent_bits) << f.mantissa_bits | (type == DataType::float8_e4m3 ? 7 : 0));
}

uint64_t ulps_between(uint64_t a, uint64_t b, DataType type) {
  const FloatFormat f = format_of(type);
  const int magnitude_bits = f.exponent_bits + f.mantissa_bits;
  const uint64_t not_a_number =
      type == DataType::float8_e4m3 ? 0x7f : (ones(f.exponent_bits) << f.mantissa_bits) + 1;
  const auto position = [&](uint64_t bits) {  // on the line of all values, -0 = +0
    const auto magnitude = static_cast<int64_t>(bits & ones(magnitude_bits));
    return bits >> magnitude_bits & 1 ? -magnitude : magnitude;
  };
  if ((a & ones(magnitude_bits)) >= not_a_number || (b & ones(magnitude_bits)) >= not_a_number)
    return UINT64_MAX;
  const int64_t x = position(a), y = position(b);
  return x > y ? static_cast<uint64_t>(x) - static_cast<uint64_t>(y)
               : static_cast<uint64_t>(y) - static_cast<uint64_t>(x);
}

}  // namespace muster::perf
