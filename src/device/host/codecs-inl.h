// How the bytes of an element type become vectors that can be computed with, and back.
//
// A codec turns one full vector of bytes into kParts vectors of compute lanes (Group) and back:
//   Native<T>        lanes of T itself
//   Bfloat16         float32, even and odd elements apart, so that no shuffle is needed
//   Small<Format>    float32, one part per position of the element in its 32-bit word
//   Float16          float32, by the machine's own conversion where there is one
// Stores round to nearest even. Included once per instruction set (hwy/foreach_target.h).
#if defined(MUSTER_CODECS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_CODECS_INL_H_
#undef MUSTER_CODECS_INL_H_
#else
#define MUSTER_CODECS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

// Emulated vectors run only where nobody looks for speed: kept out of line they compile in seconds, not
// minutes.
#undef MUSTER_INLINE
#if HWY_TARGET == HWY_EMU128
#define MUSTER_INLINE HWY_NOINLINE
#else
#define MUSTER_INLINE HWY_INLINE
#endif

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Bytes = hn::ScalableTag<uint8_t>;
using Words = hn::Repartition<uint32_t, Bytes>;
using SignedWords = hn::Repartition<int32_t, Bytes>;
using Floats = hn::Repartition<float, Bytes>;
using VBytes = hn::Vec<Bytes>;
using VWords = hn::Vec<Words>;
using VFloats = hn::Vec<Floats>;
constexpr size_t kVectorBytes = hn::MaxLanes(Bytes());

// n vectors (a power of two) as members rather than an array, so that they live in registers.
template <class V, int n>
struct Group {
  Group<V, n / 2> lo, hi;
};
template <class V>
struct Group<V, 1> {
  V v;
};

template <class F, class V, int n>
HWY_INLINE Group<V, n> map(F f, const Group<V, n>& a) {
  if constexpr (n == 1) {
    return {f(a.v)};
  } else {
    return {map(f, a.lo), map(f, a.hi)};
  }
}
template <class F, class V, int n>
HWY_INLINE Group<V, n> zip(F f, const Group<V, n>& a, const Group<V, n>& b) {
  if constexpr (n == 1) {
    return {f(a.v, b.v)};
  } else {
    return {zip(f, a.lo, b.lo), zip(f, a.hi, b.hi)};
  }
}

// Which of two NaNs a sum takes after depends on how the compiler orders the operands, and differs between a loop's body and
// its ends: every NaN becomes the same one.
template <class D>
HWY_INLINE hn::Vec<D> one_nan(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> bits;
  using Word = hn::TFromD<decltype(bits)>;
  constexpr auto quiet = static_cast<Word>(sizeof(Word) == 8 ? 0x7ff8000000000000u : 0x7fc00000u);
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(bits, quiet)), v);
}

template <class T>
struct Native {
  using Element = T;
  using D = hn::Repartition<T, Bytes>;
  using V = hn::Vec<D>;
  static constexpr int kParts = 1;
  static constexpr bool kSaturates = false;

  static HWY_INLINE Group<V, 1> decode(VBytes bytes) { return {hn::BitCast(D(), bytes)}; }
  static HWY_INLINE VBytes encode(const Group<V, 1>& g) {
    if constexpr (std::is_floating_point_v<T>)
      return hn::BitCast(Bytes(), one_nan(D(), g.v));
    else
      return hn::BitCast(Bytes(), g.v);
  }
};

struct Bfloat16 {
  using Element = uint16_t;
  using D = Floats;
  using V = VFloats;
  static constexpr int kParts = 2;
  static constexpr bool kSaturates = false;

  static MUSTER_INLINE Group<V, 2> decode(VBytes bytes) {
    const Words d;
    const VWords w = hn::BitCast(d, bytes);
    return {{hn::BitCast(Floats(), hn::ShiftLeft<16>(w))},
            {hn::BitCast(Floats(), hn::And(w, hn::Set(d, 0xffff0000u)))}};
  }
  static MUSTER_INLINE VBytes encode(const Group<V, 2>& g) {
    const Words d;
    const VWords even = hn::ShiftRight<16>(rounded(g.lo.v));
    const VWords odd = hn::And(rounded(g.hi.v), hn::Set(d, 0xffff0000u));
    return hn::BitCast(Bytes(), hn::Or(even, odd));
  }

 private:
  // The upper half of each word is the rounded value; the lower half is noise.
  static MUSTER_INLINE VWords rounded(V x) {
    const Words d;
    const VWords bits = hn::BitCast(d, x);
    const VWords lsb = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    const VWords r = hn::Add(hn::Add(bits, hn::Set(d, 0x7fff)), lsb);
    return hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(x)), hn::Set(d, 0x7fc00000u), r);
  }
};

struct Float16Format {
  using Element = uint16_t;
  static constexpr int kExponentBits = 5, kMantissaBits = 10, kBias = 15;
  static constexpr int32_t kLargest = 0x7c00;  // what overflow becomes: infinity
  static constexpr int32_t kInfinity = 0x7c00, kNaN = 0x7e00;
  static constexpr bool kSaturates = false;
};
struct Float8E4m3Format {
  using Element = uint8_t;
  static constexpr int kExponentBits = 4, kMantissaBits = 3, kBias = 7;
  static constexpr int32_t kLargest = 0x7e;              // 448
  static constexpr int32_t kInfinity = -1, kNaN = 0x7f;  // no infinity
  static constexpr bool kSaturates = true;
};
struct Float8E5m2Format {
  using Element = uint8_t;
  static constexpr int kExponentBits = 5, kMantissaBits = 2, kBias = 15;
  static constexpr int32_t kLargest = 0x7b;  // 57344
  static constexpr int32_t kInfinity = 0x7c, kNaN = 0x7f;
  static constexpr bool kSaturates = true;
};

// A float of 8 or 16 bits by integer operations in 32-bit lanes, without relying on float32 subnormals.
template <class F>
struct Small {
  using Element = typename F::Element;
  using D = Floats;
  using V = VFloats;
  static constexpr int kBits = 8 * sizeof(Element);
  static constexpr int kParts = 4 / sizeof(Element);
  static constexpr bool kSaturates = F::kSaturates;

  static MUSTER_INLINE Group<V, kParts> decode(VBytes bytes) {
    return split<kParts, 0>(hn::BitCast(Words(), bytes));
  }
  static MUSTER_INLINE VBytes encode(const Group<V, kParts>& g) {
    return hn::BitCast(Bytes(), merge<kParts, 0>(g));
  }

 private:
  static constexpr int kMagnitudeBits = kBits - 1;
  static constexpr int kSignShift = 32 - kBits;
  static constexpr int kDropped = 23 - F::kMantissaBits;              // float32 mantissa bits that we lack
  static constexpr int32_t kRebias = (127 - F::kBias) << 23;          // between the two exponent fields
  static constexpr int32_t kSmallestNormal = (128 - F::kBias) << 23;  // as float32 bits
  // A float32 whose last mantissa bit weighs as much as our smallest subnormal.
  static constexpr int32_t kRounder = (127 + 24 - F::kBias - F::kMantissaBits) << 23;
  static constexpr int32_t kFloatInfinity = 0x7f800000;

  template <int n, int first>
  static HWY_INLINE Group<V, n> split(VWords w) {
    if constexpr (n == 1) {
      return {widen(hn::And(hn::ShiftRight<first * kBits>(w), hn::Set(Words(), (1u << kBits) - 1)))};
    } else {
      return {split<n / 2, first>(w), split<n / 2, first + n / 2>(w)};
    }
  }
  template <int n, int first>
  static HWY_INLINE VWords merge(const Group<V, n>& g) {
    if constexpr (n == 1) {
      return hn::ShiftLeft<first * kBits>(narrow(g.v));
    } else {
      return hn::Or(merge<n / 2, first>(g.lo), merge<n / 2, first + n / 2>(g.hi));
    }
  }

  static MUSTER_INLINE V widen(VWords bits) {
    const SignedWords d;
    const auto all = hn::BitCast(d, bits);
    const auto magnitude = hn::And(all, hn::Set(d, (1 << kMagnitudeBits) - 1));
    const auto sign = hn::ShiftLeft<kSignShift>(hn::Xor(all, magnitude));
    const auto wide = hn::ShiftLeft<kDropped>(magnitude);
    const auto normal = hn::Add(wide, hn::Set(d, kRebias));
    const auto base = hn::Set(d, kSmallestNormal);
    const auto subnormal =
        hn::BitCast(d, hn::Sub(hn::BitCast(Floats(), hn::Or(wide, base)), hn::BitCast(Floats(), base)));
    const auto is_subnormal = hn::Lt(magnitude, hn::Set(d, 1 << F::kMantissaBits));
    auto r = hn::IfThenElse(is_subnormal, subnormal, normal);
    // The first code that isn't finite keeps its mantissa: zero is infinity, all else is NaN.
    constexpr int32_t first_special = F::kInfinity >= 0 ? F::kInfinity : F::kNaN;
    const auto is_special = hn::Gt(magnitude, hn::Set(d, first_special - 1));
    r = hn::IfThenElse(is_special, hn::Or(wide, hn::Set(d, kFloatInfinity)), r);
    return hn::BitCast(Floats(), hn::Or(r, sign));
  }

  static MUSTER_INLINE VWords narrow(V x) {
    const SignedWords d;
    const auto bits = hn::BitCast(d, x);
    const auto magnitude = hn::And(bits, hn::Set(d, 0x7fffffff));
    const auto sign = hn::And(hn::BitCast(d, hn::ShiftRight<kSignShift>(hn::BitCast(Words(), bits))),
                              hn::Set(d, 1 << kMagnitudeBits));
    const auto lsb = hn::And(hn::ShiftRight<kDropped>(magnitude), hn::Set(d, 1));
    const auto half = hn::Set(d, (1 << (kDropped - 1)) - 1 - kRebias);
    const auto normal = hn::ShiftRight<kDropped>(hn::Add(hn::Add(magnitude, half), lsb));
    const auto rounder = hn::Set(d, kRounder);
    const auto sum = hn::Add(hn::BitCast(Floats(), magnitude), hn::BitCast(Floats(), rounder));
    const auto subnormal = hn::Sub(hn::BitCast(d, sum), rounder);
    auto r = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, kSmallestNormal)), subnormal, normal);
    r = hn::Min(r, hn::Set(d, F::kLargest));
    const auto infinity = hn::Set(d, kFloatInfinity);
    if constexpr (F::kInfinity >= 0 && F::kInfinity != F::kLargest) {
      r = hn::IfThenElse(hn::Eq(magnitude, infinity), hn::Set(d, F::kInfinity), r);
    }
    r = hn::Or(r, sign);
    r = hn::IfThenElse(hn::Gt(magnitude, infinity), hn::Set(d, F::kNaN), r);
    return hn::BitCast(Words(), r);
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64)
struct Float16 {
  using Element = uint16_t;
  using D = Floats;
  using V = VFloats;
  static constexpr int kParts = 2;
  static constexpr bool kSaturates = false;

  static MUSTER_INLINE Group<V, 2> decode(VBytes bytes) {
    const auto all = hn::BitCast(Words16(), bytes);
    const auto lo = hn::BitCast(HalfOfHalves(), hn::LowerHalf(HalfOfWords16(), all));
    const auto hi = hn::BitCast(HalfOfHalves(), hn::UpperHalf(HalfOfWords16(), all));
    return {{hn::PromoteTo(Floats(), lo)}, {hn::PromoteTo(Floats(), hi)}};
  }
  static MUSTER_INLINE VBytes encode(const Group<V, 2>& g) {
    const auto lo = hn::BitCast(HalfOfWords16(), hn::DemoteTo(HalfOfHalves(), one_nan(Floats(), g.lo.v)));
    const auto hi = hn::BitCast(HalfOfWords16(), hn::DemoteTo(HalfOfHalves(), one_nan(Floats(), g.hi.v)));
    return hn::BitCast(Bytes(), hn::Combine(Words16(), hi, lo));
  }

 private:
  using Words16 = hn::Repartition<uint16_t, Bytes>;
  using HalfOfWords16 = hn::Half<Words16>;
  using HalfOfHalves = hn::Rebind<hwy::float16_t, HalfOfWords16>;
};
#else
using Float16 = Small<Float16Format>;
#endif

}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
