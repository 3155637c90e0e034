// Element types of the kernels: how an element's bits become a value that is computed with, and back. The
// rules are those of the host's kernels (device/host/kernels.h), so that results are the same bits.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace muster::cuda {

// T as it is. Storing makes every NaN the same one.
template <class T>
struct Native {
  using Element = T;
  using Lane = T;
  static constexpr bool kSaturates = false;
  static __device__ Lane decode(Element e) { return e; }
  static __device__ Element encode(Lane v) {
    if constexpr (std::is_same_v<T, float>)
      return v == v ? v : __uint_as_float(0x7fc00000u);
    else if constexpr (std::is_same_v<T, double>)
      return v == v ? v : __longlong_as_double(0x7ff8000000000000ll);
    else
      return v;
  }
};

struct Bfloat16 {
  using Element = uint16_t;
  using Lane = float;
  static constexpr bool kSaturates = false;
  static __device__ Lane decode(Element e) { return __uint_as_float(uint32_t{e} << 16); }
  static __device__ Element encode(Lane v) {
    if (v != v) return 0x7fc0;
    const uint32_t bits = __float_as_uint(v);
    return static_cast<Element>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

struct Float16 {
  using Element = uint16_t;
  using Lane = float;
  static constexpr bool kSaturates = false;
  static __device__ Lane decode(Element e) { return __half2float(__ushort_as_half(e)); }
  static __device__ Element encode(Lane v) {
    return v == v ? __half_as_ushort(__float2half_rn(v)) : Element{0x7e00};
  }
};

struct Float8E4m3Format {
  static constexpr int kMantissaBits = 3, kBias = 7;
  static constexpr int32_t kLargest = 0x7e;              // 448: what overflow becomes
  static constexpr int32_t kInfinity = -1, kNaN = 0x7f;  // there is no infinity
};
struct Float8E5m2Format {
  static constexpr int kMantissaBits = 2, kBias = 15;
  static constexpr int32_t kLargest = 0x7b;  // 57344
  static constexpr int32_t kInfinity = 0x7c, kNaN = 0x7f;
};

// By integer operations: GPUs before sm_89 have no conversion, and those that have make infinity finite.
template <class F>
struct Float8 {
  using Element = uint8_t;
  using Lane = float;
  static constexpr bool kSaturates = true;

  static __device__ Lane decode(Element e) {
    const int32_t magnitude = e & 0x7f, wide = magnitude << kDropped;
    int32_t bits = wide + kRebias;
    if (magnitude < 1 << F::kMantissaBits)
      bits =
          __float_as_int(__fsub_rn(__int_as_float(wide | kSmallestNormal), __int_as_float(kSmallestNormal)));
    constexpr int32_t kFirstSpecial = F::kInfinity >= 0 ? F::kInfinity : F::kNaN;
    if (magnitude >= kFirstSpecial) bits = wide | kFloatInfinity;  // without a mantissa infinity, else NaN
    return __int_as_float(static_cast<int32_t>(static_cast<uint32_t>(bits) | uint32_t{e} >> 7 << 31));
  }

  static __device__ Element encode(Lane v) {
    const uint32_t all = __float_as_uint(v);
    const auto magnitude = static_cast<int32_t>(all & 0x7fffffff);
    int32_t r;
    if (magnitude < kSmallestNormal)
      r = __float_as_int(__fadd_rn(__int_as_float(magnitude), __int_as_float(kRounder))) - kRounder;
    else
      r = (magnitude - kRebias + (1 << (kDropped - 1)) - 1 + (magnitude >> kDropped & 1)) >> kDropped;
    r = min(r, F::kLargest);
    if (F::kInfinity >= 0 && magnitude == kFloatInfinity) r = F::kInfinity;
    if (magnitude > kFloatInfinity) return F::kNaN;
    return static_cast<Element>(r) | static_cast<Element>(all >> 31 << 7);
  }

 private:
  static constexpr int kDropped = 23 - F::kMantissaBits;              // float32 mantissa bits that we lack
  static constexpr int32_t kRebias = (127 - F::kBias) << 23;          // between the two exponent fields
  static constexpr int32_t kSmallestNormal = (128 - F::kBias) << 23;  // as float32 bits
  // A float32 whose last mantissa bit weighs as much as our smallest subnormal.
  static constexpr int32_t kRounder = (127 + 24 - F::kBias - F::kMantissaBits) << 23;
  static constexpr int32_t kFloatInfinity = 0x7f800000;
};

// --- operations on lanes; multiplications and additions are never fused ---

template <class T>
__device__ T add(T a, T b) {
  if constexpr (std::is_same_v<T, float>)
    return __fadd_rn(a, b);
  else if constexpr (std::is_same_v<T, double>)
    return __dadd_rn(a, b);
  else
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
}

template <class C>
__device__ typename C::Lane multiply(typename C::Lane a, typename C::Lane b) {
  using T = typename C::Lane;
  if constexpr (std::is_same_v<T, float>) {
    const float r = __fmul_rn(a, b);
    if constexpr (C::kSaturates) {
      // Finite factors never make an infinity, which a later factor of 0 would turn into NaN.
      constexpr float kLargest = 3.402823466e38f;
      if (fabsf(a) <= kLargest && fabsf(b) <= kLargest && fabsf(r) > kLargest) return copysignf(kLargest, r);
    }
    return r;
  } else if constexpr (std::is_same_v<T, double>) {
    return __dmul_rn(a, b);
  } else {
    // 64 bits, so that narrow types aren't promoted to int, which may not overflow
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
}

// NaN if either is; -0 is less than +0.
template <class T>
__device__ T larger(T a, T b) {
  if constexpr (std::is_same_v<T, float>) {
    if (a == b) return __uint_as_float(__float_as_uint(a) & __float_as_uint(b));
    return a > b || a != a ? a : b;
  } else if constexpr (std::is_same_v<T, double>) {
    if (a == b) return __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b));
    return a > b || a != a ? a : b;
  } else {
    return a > b ? a : b;
  }
}
template <class T>
__device__ T smaller(T a, T b) {
  if constexpr (std::is_same_v<T, float>) {
    if (a == b) return __uint_as_float(__float_as_uint(a) | __float_as_uint(b));
    return a < b || a != a ? a : b;
  } else if constexpr (std::is_same_v<T, double>) {
    if (a == b) return __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
    return a < b || a != a ? a : b;
  } else {
    return a < b ? a : b;
  }
}

// Integers truncate toward zero.
template <class T>
__device__ T divide(T a, uint32_t divisor) {
  if constexpr (std::is_same_v<T, float>)
    return __fdiv_rn(a, static_cast<float>(divisor));
  else if constexpr (std::is_same_v<T, double>)
    return __ddiv_rn(a, static_cast<double>(divisor));
  else if constexpr (sizeof(T) == 8)
    return a / static_cast<T>(divisor);
  else if constexpr (std::is_signed_v<T>)
    return static_cast<T>(int32_t{a} / static_cast<int32_t>(divisor));
  else
    return static_cast<T>(uint32_t{a} / divisor);
}

}  // namespace muster::cuda
