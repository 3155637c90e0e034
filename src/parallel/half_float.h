// 16-bit floats as their bits, and the way to float and back: to nearest even, NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace muster {

struct Float16 {
  uint16_t bits = 0;
};
struct BFloat16 {
  uint16_t bits = 0;
};

inline float to_float(float x) { return x; }
inline float to_float(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
inline float to_float(Float16 x) {
  const uint32_t sign = (x.bits & 0x8000u) << 16, rest = (x.bits & 0x7fffu) << 13;
  // The exponent's bias differs by 112; what has the largest is infinite or NaN.
  const uint32_t magnitude = rest >= 0x0f800000u
                                 ? rest | 0x7f800000u
                                 : std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112f);
  return std::bit_cast<float>(sign | magnitude);
}

template <class Element>
Element from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline BFloat16 from_float<BFloat16>(float x) {
  const uint32_t b = std::bit_cast<uint32_t>(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(b >> 16 | 0x40u)};
  return {static_cast<uint16_t>((b + 0x7fffu + (b >> 16 & 1u)) >> 16)};
}
template <>
inline Float16 from_float<Float16>(float x) {
  const uint32_t b = std::bit_cast<uint32_t>(x), sign = b >> 16 & 0x8000u, a = b & 0x7fffffffu;
  uint32_t magnitude;
  if (a > 0x7f800000u)
    magnitude = 0x7e00u;
  else if (a >= 0x477ff000u)  // 65520, which rounds to infinity, or more
    magnitude = 0x7c00u;
  else if (a < 0x38800000u)  // below 2^-14, in steps of 2^-24: those that 0.5 has
    magnitude = std::bit_cast<uint32_t>(std::bit_cast<float>(a) + 0.5f) - 0x3f000000u;
  else
    magnitude = (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13;
  return {static_cast<uint16_t>(sign | magnitude)};
}

}  // namespace muster
