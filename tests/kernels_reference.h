// What the host kernels must compute, one element at a time, by the plainest means: decoding by ldexp,
// rounding by searching the format's values, integers modulo 2^64. Elements are bit patterns in a uint64_t.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "muster/types.h"

namespace muster::reference {

inline bool is_signed(DataType t) {
  return t == DataType::int8 || t == DataType::int32 || t == DataType::int64;
}
inline bool is_integer(DataType t) { return static_cast<int>(t) <= static_cast<int>(DataType::uint64); }

// A float of 8 or 16 bits.
struct Format {
  int exponent_bits, mantissa_bits;
  bool has_infinity, saturates;

  explicit Format(DataType t) {
    switch (t) {
      case DataType::float16:
        *this = {5, 10, true, false};
        break;
      case DataType::bfloat16:
        *this = {8, 7, true, false};
        break;
      case DataType::float8_e4m3:
        *this = {4, 3, false, true};
        break;
      default:
        *this = {5, 2, true, true};
        break;
    }
    for (uint32_t code = 0; std::isfinite(decode(code)) && !(code >> magnitude_bits()); ++code) {
      finite.push_back(decode(code));
    }
  }

  int magnitude_bits() const { return exponent_bits + mantissa_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint64_t nan() const { return (uint64_t{1} << magnitude_bits()) - 1; }
  uint64_t infinity() const { return finite.size(); }

  float decode(uint64_t code) const {
    const uint64_t magnitude = code & ((uint64_t{1} << magnitude_bits()) - 1);
    const double sign = code >> magnitude_bits() & 1 ? -1 : 1;
    const int exponent = static_cast<int>(magnitude >> mantissa_bits);
    const double mantissa = static_cast<double>(magnitude & ((1u << mantissa_bits) - 1));
    const double one = 1 << mantissa_bits;
    if (has_infinity && exponent == (1 << exponent_bits) - 1) {
      return static_cast<float>(mantissa != 0 ? NAN : sign * INFINITY);
    }
    if (!has_infinity && magnitude == nan()) return NAN;
    if (exponent == 0) return static_cast<float>(sign * std::ldexp(mantissa / one, 1 - bias()));
    return static_cast<float>(sign * std::ldexp(1 + mantissa / one, exponent - bias()));
  }

  uint64_t encode(float x) const {
    if (std::isnan(x)) return nan();
    const uint64_t sign = std::signbit(x) ? uint64_t{1} << magnitude_bits() : 0;
    const uint64_t largest = finite.size() - 1;
    const double a = std::fabs(static_cast<double>(x));
    if (std::isinf(x)) return sign | (has_infinity ? infinity() : largest);
    if (a >= finite[largest]) {
      const double tie = finite[largest] + (double{finite[largest]} - finite[largest - 1]) / 2;
      return sign | (a >= tie && !saturates ? infinity() : largest);
    }
    const auto above =
        static_cast<uint64_t>(std::upper_bound(finite.begin(), finite.end(), a) - finite.begin());
    const double down = a - finite[above - 1], up = finite[above] - a;
    const bool take_above = up < down || (up == down && above % 2 == 0);
    return sign | (take_above ? above : above - 1);
  }

  std::vector<float> finite;  // by code, ascending

 private:
  Format(int e, int m, bool inf, bool sat)
      : exponent_bits(e), mantissa_bits(m), has_infinity(inf), saturates(sat) {}
};

inline const Format& format(DataType t) {
  static const Format f16(DataType::float16), bf16(DataType::bfloat16), e4m3(DataType::float8_e4m3),
      e5m2(DataType::float8_e5m2);
  return t == DataType::float16       ? f16
         : t == DataType::bfloat16    ? bf16
         : t == DataType::float8_e4m3 ? e4m3
                                      : e5m2;
}

inline bool is_nan(DataType t, uint64_t bits) {
  if (is_integer(t)) return false;
  if (t == DataType::float32) return std::isnan(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  if (t == DataType::float64) return std::isnan(std::bit_cast<double>(bits));
  return std::isnan(format(t).decode(bits));
}

// The same value: same bits, or both NaN.
inline bool same(DataType t, uint64_t a, uint64_t b) { return a == b || (is_nan(t, a) && is_nan(t, b)); }

struct Reduction {
  DataType type;
  RedOp op;
  uint64_t weighted = 0, weight = 0;
  uint32_t divisor = 0;
};

template <class T>
T combine_float(RedOp op, T a, T b, bool saturates) {
  // volatile: the product is rounded by itself, not fused into a later sum.
  volatile T r = 0;
  if (op == RedOp::max || op == RedOp::min) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    const bool max = op == RedOp::max;
    if (a == b) return std::signbit(a) == max ? b : a;
    return (a > b) == max ? a : b;
  }
  r = op == RedOp::prod ? a * b : a + b;
  if (saturates && std::isfinite(a) && std::isfinite(b) && std::isinf(r)) {
    r = std::copysign(std::numeric_limits<T>::max(), r);
  }
  return r;
}

template <class T, class Decode>
T fold_float(const Reduction& r, const std::vector<uint64_t>& in, Decode decode, bool saturates) {
  T acc = 0;
  for (size_t j = 0; j < in.size(); ++j) {
    T x = decode(in[j]);
    if (j < 64 && (r.weighted >> j & 1)) x = combine_float(RedOp::prod, x, decode(r.weight), saturates);
    acc = j == 0 ? x : combine_float(r.op, acc, x, saturates);
  }
  return r.divisor != 0 ? acc / static_cast<T>(r.divisor) : acc;
}

inline uint64_t fold_integer(const Reduction& r, const std::vector<uint64_t>& in) {
  const int bits = 8 * static_cast<int>(size_of(r.type));
  const auto extend = [&](uint64_t x) {  // to 64 bits, as the type's sign says
    const uint64_t up = x << (64 - bits);
    return is_signed(r.type) ? static_cast<uint64_t>(static_cast<int64_t>(up) >> (64 - bits))
                             : up >> (64 - bits);
  };
  const auto less = [&](uint64_t a, uint64_t b) {
    return is_signed(r.type) ? static_cast<int64_t>(a) < static_cast<int64_t>(b) : a < b;
  };
  uint64_t acc = 0;
  for (size_t j = 0; j < in.size(); ++j) {
    uint64_t x = extend(in[j]);
    if (j < 64 && (r.weighted >> j & 1)) x *= extend(r.weight);
    if (j == 0) {
      acc = x;
    } else if (r.op == RedOp::prod) {
      acc *= x;
    } else if (r.op == RedOp::max) {
      acc = less(acc, x) ? x : acc;
    } else if (r.op == RedOp::min) {
      acc = less(x, acc) ? x : acc;
    } else {
      acc += x;
    }
  }
  acc = extend(acc);
  if (r.divisor != 0) {
    acc = is_signed(r.type) ? static_cast<uint64_t>(static_cast<int64_t>(acc) / int64_t{r.divisor})
                            : acc / r.divisor;
  }
  return bits == 64 ? acc : acc & ((uint64_t{1} << bits) - 1);
}

inline bool is_bitwise(RedOp op) {
  return op == RedOp::bit_and || op == RedOp::bit_or || op == RedOp::bit_xor;
}
inline bool is_logical(RedOp op) {
  return op == RedOp::logical_and || op == RedOp::logical_or || op == RedOp::logical_xor;
}

inline uint64_t fold_bits(RedOp op, const std::vector<uint64_t>& in) {
  uint64_t acc = in[0];
  for (size_t j = 1; j < in.size(); ++j)
    acc = op == RedOp::bit_and ? acc & in[j] : op == RedOp::bit_or ? acc | in[j] : acc ^ in[j];
  return acc;
}

inline bool is_true(DataType t, uint64_t bits) {
  if (is_integer(t)) return bits != 0;
  if (t == DataType::float64) return std::bit_cast<double>(bits) != 0;
  if (t == DataType::float32) return std::bit_cast<float>(static_cast<uint32_t>(bits)) != 0;
  return format(t).decode(bits) != 0;
}

// By counting: all, one at least, an odd number.
inline uint64_t fold_truths(const Reduction& r, const std::vector<uint64_t>& in) {
  size_t truths = 0;
  for (const uint64_t x : in) truths += is_true(r.type, x);
  const bool result = r.op == RedOp::logical_and  ? truths == in.size()
                      : r.op == RedOp::logical_or ? truths > 0
                                                  : truths % 2 == 1;
  if (!result) return 0;
  if (is_integer(r.type)) return 1;
  if (r.type == DataType::float64) return std::bit_cast<uint64_t>(1.0);
  if (r.type == DataType::float32) return std::bit_cast<uint32_t>(1.0f);
  return format(r.type).encode(1);
}

// The result for one element of each source.
inline uint64_t reduce(const Reduction& r, const std::vector<uint64_t>& in) {
  if (is_bitwise(r.op)) return fold_bits(r.op, in);
  if (is_logical(r.op)) return fold_truths(r, in);
  if (is_integer(r.type)) return fold_integer(r, in);
  if (r.type == DataType::float64) {
    const auto decode = [](uint64_t b) { return std::bit_cast<double>(b); };
    return std::bit_cast<uint64_t>(fold_float<double>(r, in, decode, false));
  }
  if (r.type == DataType::float32) {
    const auto decode = [](uint64_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b)); };
    return std::bit_cast<uint32_t>(fold_float<float>(r, in, decode, false));
  }
  const Format& f = format(r.type);
  return f.encode(fold_float<float>(
      r, in, [&](uint64_t b) { return f.decode(b); }, f.saturates));
}

}  // namespace muster::reference
