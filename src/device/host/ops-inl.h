// The operations on vectors of compute lanes: Sum, Prod, Max, Min of two vectors, and division by the rank
// count. Each is a template on the codec, whose lanes it works on. Included once per instruction set.
#if defined(MUSTER_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_OPS_INL_H_
#undef MUSTER_OPS_INL_H_
#else
#define MUSTER_OPS_INL_H_
#endif

#include <limits>

#include "device/host/codecs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {

template <class C>
using Lane = hn::TFromD<typename C::D>;
template <class C>
inline constexpr bool kIsFloat = std::is_floating_point_v<Lane<C>>;

template <class C>
struct Sum {
  using V = typename C::V;
  MUSTER_INLINE V operator()(V a, V b) const { return hn::Add(a, b); }
};

template <class C>
struct Prod {
  using V = typename C::V;
  using D = typename C::D;
  MUSTER_INLINE V operator()(V a, V b) const {
    if constexpr (C::kSaturates) {
      return saturated(hn::Mul(a, b), a, b);
    } else if constexpr (sizeof(Lane<C>) == 1) {
      return mul8(a, b);
    } else if constexpr (sizeof(Lane<C>) == 8 && !kIsFloat<C>) {
      return mul64(a, b);
    } else {
      return hn::Mul(a, b);
    }
  }

 private:
  // Finite factors never make an infinity, which a later factor of 0 would turn into NaN.
  static HWY_INLINE V saturated(V r, V a, V b) {
    const D d;
    const V largest = hn::Set(d, std::numeric_limits<float>::max());
    const auto finite = hn::And(hn::Le(hn::Abs(a), largest), hn::Le(hn::Abs(b), largest));
    const auto overflowed = hn::And(finite, hn::Gt(hn::Abs(r), largest));
    return hn::IfThenElse(overflowed, hn::CopySign(largest, r), r);
  }
  static HWY_INLINE V mul8(V a, V b) {
    const hn::Repartition<uint16_t, Bytes> d;
    const auto a16 = hn::BitCast(d, a), b16 = hn::BitCast(d, b);
    const auto even = hn::And(hn::Mul(a16, b16), hn::Set(d, 0xff));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
    return hn::BitCast(D(), hn::Or(even, odd));
  }
  static HWY_INLINE V mul64(V a, V b) {
    const hn::Repartition<uint64_t, Bytes> d;
    const auto a64 = hn::BitCast(d, a), b64 = hn::BitCast(d, b);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_EMU128
    return hn::BitCast(D(), hn::Mul(a64, b64));
#else
    const auto a32 = hn::BitCast(Words(), a), b32 = hn::BitCast(Words(), b);
    const auto a_high = hn::BitCast(Words(), hn::ShiftRight<32>(a64));
    const auto b_high = hn::BitCast(Words(), hn::ShiftRight<32>(b64));
    const auto cross = hn::Add(hn::MulEven(a_high, b32), hn::MulEven(a32, b_high));
    return hn::BitCast(D(), hn::Add(hn::MulEven(a32, b32), hn::ShiftLeft<32>(cross)));
#endif
  }
};

// b where a doesn't win, else a; NaN if either is. x86 and Arm disagree about NaN and the order of the two
// zeros, so both are spelled out: equal operands differ only when they are zeros, and `zeros` gives the sign
// of the result.
template <class V, class M>
MUSTER_INLINE V select(M a_wins, V a, V b, V zeros) {
  V r = hn::IfThenElse(a_wins, a, b);
  r = hn::IfThenElse(hn::Eq(a, b), zeros, r);
  return hn::IfThenElse(hn::IsNaN(a), a, r);
}

template <class C>
struct Max {
  using V = typename C::V;
  MUSTER_INLINE V operator()(V a, V b) const {
    if constexpr (kIsFloat<C>) {
      return select(hn::Gt(a, b), a, b, hn::And(a, b));
    } else {
      return hn::Max(a, b);
    }
  }
};

template <class C>
struct Min {
  using V = typename C::V;
  MUSTER_INLINE V operator()(V a, V b) const {
    if constexpr (kIsFloat<C>) {
      return select(hn::Lt(a, b), a, b, hn::Or(a, b));
    } else {
      return hn::Min(a, b);
    }
  }
};

// Second operand of an operation, the same for all lanes.
template <class Op, class V>
struct With {
  V b;
  HWY_INLINE V operator()(V a) const { return Op()(a, b); }
};

// The combined value over `divisor` (> 0); integers truncate toward zero.
template <class C>
class Divide {
 public:
  using V = typename C::V;
  using D = typename C::D;
  using T = Lane<C>;

  HWY_INLINE explicit Divide(uint32_t divisor)
      : divisor_(divisor), reciprocal_(std::numeric_limits<uint64_t>::max() / divisor + 1) {}

  MUSTER_INLINE V operator()(V a) const {
    const D d;
    if constexpr (kIsFloat<C>) {
      return hn::Div(a, hn::Set(d, static_cast<T>(divisor_)));
    } else {
      if (divisor_ == 1) return a;
      HWY_ALIGN T lanes[hn::MaxLanes(D())];
      hn::Store(a, d, lanes);
      for (T& x : lanes) x = quotient(x);
      return hn::Load(d, lanes);
    }
  }

 private:
  MUSTER_INLINE T quotient(T x) const {
    if constexpr (sizeof(T) == 8) {
      return static_cast<T>(x / static_cast<T>(divisor_));
    } else {
      // Exact for 32-bit operands: the reciprocal's error is less than 2^-32 of a unit.
      const bool negative = x < T{0};
      const uint32_t bits = static_cast<uint32_t>(x);
      const uint64_t magnitude = negative ? 0u - bits : bits;
      const auto q = static_cast<uint32_t>((static_cast<unsigned __int128>(reciprocal_) * magnitude) >> 64);
      return static_cast<T>(negative ? 0u - q : q);
    }
  }

  uint32_t divisor_;
  uint64_t reciprocal_;  // ceil(2^64 / divisor), for divisor > 1
};

}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
