// PTX's operations on values; their names are PTX's.
#pragma once

#include <algorithm>

#include "ptx_types.h"

template <class T>
IN T op_add(T a, T b) {
  if constexpr (SMALLF(T))
    return mk<T>(fl(a) + fl(b));
  else if constexpr (isf<T>)
    return a + b;
  else
    return (T)((std::make_unsigned_t<T>)a + (std::make_unsigned_t<T>)b);
}
template <class T>
IN T op_sub(T a, T b) {
  if constexpr (SMALLF(T))
    return mk<T>(fl(a) - fl(b));
  else if constexpr (isf<T>)
    return a - b;
  else
    return (T)((std::make_unsigned_t<T>)a - (std::make_unsigned_t<T>)b);
}
template <class T>
IN T op_mul(T a, T b) {
  if constexpr (SMALLF(T))
    return mk<T>(fl(a) * fl(b));
  else if constexpr (isf<T>)
    return a * b;
  else if constexpr (sizeof(T) <= 2)
    return (T)((u32)a * (u32)b);
  else
    return (T)((std::make_unsigned_t<T>)a * (std::make_unsigned_t<T>)b);
}
template <class T>
IN T op_fma(T a, T b, T c) {
  if constexpr (SMALLF(T))
    return mk<T>(std::fma(fl(a), fl(b), fl(c)));
  else
    return std::fma(a, b, c);
}
template <class T>
IN T op_div(T a, T b) {
  if constexpr (isf<T>)
    return mk<T>(fl(a) / fl(b));
  else {
    if (!b) return (T)-1;
    if constexpr (std::is_signed_v<T>)
      if (b == (T)-1) return op_sub((T)0, a);
    return a / b;
  }
}
template <class T>
IN T op_rem(T a, T b) {
  if (!b) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == (T)-1) return 0;
  return a % b;
}
template <class T>
IN T op_min(T a, T b) {
  if constexpr (isf<T>) {
    double x = fl(a), y = fl(b);
    if (std::isnan(x)) return b;
    if (std::isnan(y)) return a;
    if (x == y) return std::signbit(x) ? a : b;
    return x < y ? a : b;
  } else
    return a < b ? a : b;
}
template <class T>
IN T op_max(T a, T b) {
  if constexpr (isf<T>) {
    double x = fl(a), y = fl(b);
    if (std::isnan(x)) return b;
    if (std::isnan(y)) return a;
    if (x == y) return std::signbit(x) ? b : a;
    return x > y ? a : b;
  } else
    return a > b ? a : b;
}
template <class T>
IN T op_neg(T a) {
  if constexpr (SMALLF(T))
    return T{(u16)(a.b ^ 0x8000)};
  else if constexpr (isf<T>)
    return -a;
  else
    return op_sub((T)0, a);
}
template <class T>
IN T op_abs(T a) {
  if constexpr (SMALLF(T))
    return T{(u16)(a.b & 0x7fff)};
  else if constexpr (isf<T>)
    return std::fabs(a);
  else
    return a < 0 ? op_neg(a) : a;
}
template <class T>
IN T mulhi(T a, T b) {
  if constexpr (sizeof(T) == 8) {
    if constexpr (std::is_signed_v<T>)
      return (T)((s128)a * b >> 64);
    else
      return (T)((u128)a * b >> 64);
  } else if constexpr (sizeof(T) == 4) {
    if constexpr (std::is_signed_v<T>)
      return (T)((s64)a * b >> 32);
    else
      return (T)((u64)a * b >> 32);
  } else
    return (T)((s32)a * b >> 16);
}
template <class T>
IN T shl_(T a, u32 n) {
  return n >= sizeof(T) * 8 ? 0 : (T)(a << n);
}
template <class T>
IN T shr_(T a, u32 n) {
  if (n >= sizeof(T) * 8) {
    if constexpr (std::is_signed_v<T>)
      return a < 0 ? (T)-1 : 0;
    else
      return 0;
  }
  return (T)(a >> n);
}
// additions with the carry flag CF (a local of the generated function)
template <class T>
IN T addc_(T a, T b, u64 in, u64& out) {
  using U = std::make_unsigned_t<T>;
  U x = (U)a, r = (U)(x + (U)b), c = r < x;
  U r2 = (U)(r + (U)in);
  out = c | (r2 < r);
  return (T)r2;
}
template <class T>
IN T subc_(T a, T b, u64 in, u64& out) {
  using U = std::make_unsigned_t<T>;
  U x = (U)a, y = (U)b;
  U r = (U)(x - y), c = x < y;
  U r2 = (U)(r - (U)in);
  out = c | (r < (U)in);
  return (T)r2;
}
// comparison: op name as a template argument
enum Cmp { EQ, NE, LT, LE, GT, GE, LO, LS, HI, HS, EQU, NEU, LTU, LEU, GTU, GEU, NUM, NAN_ };
template <int C, class T>
IN bool cmp(T a, T b) {
  if constexpr (isf<T>) {
    double x = fl(a), y = fl(b);
    bool u = std::isnan(x) || std::isnan(y);
    switch (C) {
      case EQ:
        return !u && x == y;
      case NE:
        return !u && x != y;
      case LT:
        return !u && x < y;
      case LE:
        return !u && x <= y;
      case GT:
        return !u && x > y;
      case GE:
        return !u && x >= y;
      case EQU:
        return u || x == y;
      case NEU:
        return u || x != y;
      case LTU:
        return u || x < y;
      case LEU:
        return u || x <= y;
      case GTU:
        return u || x > y;
      case GEU:
        return u || x >= y;
      case NUM:
        return !u;
      default:
        return u;
    }
  } else
    switch (C) {
      case EQ:
        return a == b;
      case NE:
        return a != b;
      case LT:
      case LO:
        return a < b;
      case LE:
      case LS:
        return a <= b;
      case GT:
      case HI:
        return a > b;
      default:
        return a >= b;
    }
}
// conversions. R: rounding 'n','z','m','p' (float result), 'N','Z','M','P' (to integer)
template <class T>
IN double rnd_int(double d, char r) {
  switch (r) {
    case 'Z':
      return std::trunc(d);
    case 'M':
      return std::floor(d);
    case 'P':
      return std::ceil(d);
    default:
      return std::nearbyint(d);
  }
}
template <char R, bool SAT, class D, class S>
IN D cvt(S s) {
  if constexpr (isf<S> && isf<D>) {
    double d = fl(s);
    if constexpr (R == 'N' || R == 'Z' || R == 'M' || R == 'P') d = rnd_int<S>(d, R);
    if constexpr (SAT) d = std::isnan(d) ? 0 : d < 0 ? 0 : d > 1 ? 1 : d;
    if constexpr (R == 'z' && std::is_same_v<D, bf16>) return f2b((float)d, true);
    if constexpr (R == 'z' && std::is_same_v<D, float> && std::is_same_v<S, double>) {
      float f = (float)d;
      if (std::fabs((double)f) > std::fabs(d)) f = std::nextafter(f, 0.f);
      return f;
    }
    return mk<D>(d);
  } else if constexpr (isf<S>) {  // float to integer: clamps, NaN gives 0
    double d = fl(s);
    if (std::isnan(d)) return sizeof(D) == 8 && std::is_same_v<S, double> ? (D)(1ull << 63) : 0;
    d = rnd_int<S>(d, R);
    double lo = std::is_signed_v<D> ? -std::ldexp(1.0, sizeof(D) * 8 - 1) : 0,
           hi = std::ldexp(1.0, sizeof(D) * 8 - (std::is_signed_v<D> ? 1 : 0));
    if (d <= lo) return (D)(std::is_signed_v<D> ? (std::make_unsigned_t<D>)1 << (sizeof(D) * 8 - 1) : 0);
    if (d >= hi) return (D) ~(std::is_signed_v<D> ? (std::make_unsigned_t<D>)1 << (sizeof(D) * 8 - 1) : 0);
    return (D)d;
  } else if constexpr (isf<D>) {
    if constexpr (std::is_same_v<D, float>) {
      return (float)s;
    } else if constexpr (std::is_same_v<D, double>)
      return (double)s;
    else if constexpr (sizeof(S) < 8)
      return mk<D>((double)s);
    else {
      long double l = (long double)s;
      double d = (double)l;
      if ((long double)d != l) {
        u64 u;
        memcpy(&u, &d, 8);
        if ((long double)std::fabs(d) > (l < 0 ? -l : l)) u--;
        u |= 1;
        memcpy(&d, &u, 8);
      }
      return mk<D>(d);
    }
  } else {
    if constexpr (SAT) {
      s128 v = s, lo = std::is_signed_v<D> ? -((s128)1 << (sizeof(D) * 8 - 1)) : 0,
           hi = ((s128)1 << (sizeof(D) * 8 - (std::is_signed_v<D> ? 1 : 0))) - 1;
      return (D)(v < lo ? lo : v > hi ? hi : v);
    }
    return (D)s;
  }
}
IN u32 prmt_(u32 a, u32 b, u32 s) {
  u64 x = (u64)b << 32 | a;
  u32 r = 0;
  for (int i = 0; i < 4; i++) {
    u32 c = s >> (4 * i) & 15;
    u32 by = x >> ((c & 7) * 8) & 255;
    if (c & 8) by = by & 0x80 ? 255 : 0;
    r |= by << (8 * i);
  }
  return r;
}
IN u32 lop3_(u32 a, u32 b, u32 c, u32 l) {
  u32 r = 0;
  if (l & 1) r |= ~a & ~b & ~c;
  if (l & 2) r |= ~a & ~b & c;
  if (l & 4) r |= ~a & b & ~c;
  if (l & 8) r |= ~a & b & c;
  if (l & 16) r |= a & ~b & ~c;
  if (l & 32) r |= a & ~b & c;
  if (l & 64) r |= a & b & ~c;
  if (l & 128) r |= a & b & c;
  return r;
}
template <class T>
IN T bfe_(T a, u32 pos, u32 len) {
  pos &= 255;
  len &= 255;
  const u32 W = sizeof(T) * 8;
  if (!len) return 0;
  using U = std::make_unsigned_t<T>;
  if (pos >= W) return std::is_signed_v<T> && a < 0 ? (T)-1 : 0;
  U u = (U)a >> pos;
  u32 eff = std::min(len, W - pos);
  U m = eff >= W ? (U)-1 : ((U)1 << eff) - 1;
  u &= m;
  if (std::is_signed_v<T>) {
    bool sg = pos + len - 1 >= W ? a < 0 : ((U)a >> (pos + len - 1)) & 1;
    if (sg) u |= ~m;
  }
  return (T)u;
}
template <class T>
IN T bfi_(T a, T b, u32 pos, u32 len) {
  pos &= 255;
  len &= 255;
  const u32 W = sizeof(T) * 8;
  if (!len || pos >= W) return b;
  T m = len >= W ? (T)-1 : (T)(((T)1 << len) - 1);
  m = (T)(m << pos);
  return (T)((b & ~m) | ((a << pos) & m));
}
template <class T>
IN u32 bfind_(T a, bool amt) {
  using U = std::make_unsigned_t<T>;
  U u = (U)a;
  if (std::is_signed_v<T> && a < 0) u = ~u;
  if (!u) return ~0u;
  u32 p = 63 - __builtin_clzll((u64)u);
  return amt ? sizeof(T) * 8 - 1 - p : p;
}
IN u32 brev32(u32 x) {
  u32 r = 0;
  for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
  return r;
}
IN u64 brev64(u64 x) { return (u64)brev32((u32)x) << 32 | brev32((u32)(x >> 32)); }
IN u32 shf_l(u32 a, u32 b, u32 n, bool wrap) {
  n = wrap ? n & 31 : std::min(n, 32u);
  u64 x = (u64)b << 32 | a;
  return (u32)(x << n >> 32);
}
IN u32 shf_r(u32 a, u32 b, u32 n, bool wrap) {
  n = wrap ? n & 31 : std::min(n, 32u);
  u64 x = (u64)b << 32 | a;
  return (u32)(x >> n);
}
