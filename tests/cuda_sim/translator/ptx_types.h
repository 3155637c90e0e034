// PTX's types. Registers hold bits; as<T>(bits) reads them as a T, put(register, value) writes them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef unsigned __int128 u128;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef __int128 s128;
typedef float f32;
typedef double f64;
#define IN static inline __attribute__((always_inline))

template <class T, class R>
IN T as(R r) {
  if constexpr (std::is_same_v<T, R>)
    return r;
  else if constexpr (sizeof(T) == sizeof(R)) {
    T t;
    memcpy(&t, &r, sizeof t);
    return t;
  } else if constexpr (std::is_integral_v<T> || std::is_same_v<T, u128>)
    return (T)r;
  else {
    T t;
    if constexpr (sizeof(R) > sizeof(T))
      memcpy(&t, &r, sizeof t);
    else {
      memset(&t, 0, sizeof t);
      memcpy(&t, &r, sizeof r);
    }
    return t;
  }
}
template <class R, class T>
IN void put(R& r, T v) {
  if constexpr (sizeof(R) == sizeof(T))
    memcpy(&r, &v, sizeof r);
  else if constexpr (std::is_integral_v<T>)
    r = (R)v;  // sign- or zero-extends
  else {
    r = 0;
    memcpy(&r, &v, sizeof v < sizeof r ? sizeof v : sizeof r);
  }
}

// 16-bit floats are structures of their bits, so that templates tell them from integers; 8-bit ones are only
// converted.
struct f16 {
  u16 b;
};
struct bf16 {
  u16 b;
};
IN float h2f(f16 h) {
  _Float16 x;
  memcpy(&x, &h.b, 2);
  return (float)x;
}
IN f16 f2h(float f) {
  _Float16 x = (_Float16)f;
  f16 h;
  memcpy(&h.b, &x, 2);
  return h;
}
IN f16 d2h(double f) {
  _Float16 x = (_Float16)f;
  f16 h;
  memcpy(&h.b, &x, 2);
  return h;
}
IN float b2f(bf16 h) {
  u32 u = (u32)h.b << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
IN bf16 f2b(float f, bool to_zero = false) {
  u32 u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return bf16{0x7fff};
  if (!to_zero) u += 0x7fff + (u >> 16 & 1);
  return bf16{(u16)(u >> 16)};
}
IN bf16 d2b(double d) {
  float f = (float)d;  // not to be rounded twice: to odd first
  double back = f;
  if (back != d) {
    u32 u;
    memcpy(&u, &f, 4);
    if (!(u & 1)) {
      bool up = std::fabs(d) > std::fabs(back);
      u = up ? u + 1 : u - 1;
      if (!(u & 1)) u |= 1;
      memcpy(&f, &u, 4);
    }
  }
  return f2b(f);
}
// With .satfinite, as PTX has them.
IN u8 f2e4m3(float f) {
  u32 u;
  memcpy(&u, &f, 4);
  u8 s = u >> 24 & 0x80;
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7f;
  float a = std::fabs(f);
  if (a >= 448.f) return s | 0x7e;
  if (a <= 0x1p-10f) return s;  // half of the smallest: to even, which is zero
  int e;
  std::frexp(a, &e);
  e -= 1;
  if (e < -6) e = -6;
  float q = std::nearbyint(std::ldexp(a, 3 - e));
  u32 m = (u32)q;
  if (m >= 16) {
    m = 8;
    e++;
  }
  if (e == 8 && m > 14) m = 14;
  return m < 8 ? s | m : s | (u8)((e + 7) << 3 | (m & 7));
}
IN u8 f2e5m2(float f) {
  u32 u;
  memcpy(&u, &f, 4);
  u8 s = u >> 24 & 0x80;
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7f;
  float a = std::fabs(f);
  if (a >= 57344.f) return s | 0x7b;
  int e;
  if (a == 0.f) return s;
  std::frexp(a, &e);
  e -= 1;
  if (e < -14) e = -14;
  float q = std::nearbyint(std::ldexp(a, 2 - e));
  u32 m = (u32)q;
  if (m >= 8) {
    m = 4;
    e++;
  }
  return m < 4 ? s | m : s | (u8)((e + 15) << 2 | (m & 3));
}
IN float e4m32f(u8 b) {
  int e = b >> 3 & 15, m = b & 7;
  float r;
  if (e == 15 && m == 7)
    r = NAN;
  else
    r = e ? std::ldexp(1.f + m / 8.f, e - 7) : std::ldexp(m / 8.f, -6);
  return b & 0x80 ? -r : r;
}
IN float e5m22f(u8 b) {
  int e = b >> 2 & 31, m = b & 3;
  float r;
  if (e == 31)
    r = m ? NAN : INFINITY;
  else
    r = e ? std::ldexp(1.f + m / 4.f, e - 15) : std::ldexp(m / 4.f, -14);
  return b & 0x80 ? -r : r;
}
// Any float as a double, in which sums and products of the small ones are exact, and back.
template <class T>
IN double fl(T v) {
  if constexpr (std::is_same_v<T, f16>)
    return h2f(v);
  else if constexpr (std::is_same_v<T, bf16>)
    return b2f(v);
  else
    return (double)v;
}
template <class T>
IN T mk(double d) {
  if constexpr (std::is_same_v<T, f16>)
    return d2h(d);
  else if constexpr (std::is_same_v<T, bf16>)
    return d2b(d);
  else
    return (T)d;
}
template <class T>
inline constexpr bool isf = std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, f16> ||
                            std::is_same_v<T, bf16>;
#define SMALLF(T) (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
IN float ftz(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.f, x) : x; }
