#include "device/host/bit_kernels.h"

#include <array>

#include "base/error.h"
#include "device/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/bit_kernels.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "device/host/kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {
namespace {

// And, or and xor differ only in what two set bits give and what two different bits give. So there is one
// kernel per width, not one per type and operation.
struct Rule {
  bool both, different;
};
constexpr Rule rule_of(RedOp op) {
  const bool is_xor = op == RedOp::bit_xor || op == RedOp::logical_xor;
  const bool is_and = op == RedOp::bit_and || op == RedOp::logical_and;
  return {!is_xor, !is_and};
}

template <class D>
HWY_INLINE hn::Vec<D> all_or_none(D d, bool set) {
  return set ? hn::Not(hn::Zero(d)) : hn::Zero(d);
}

template <class C>
struct Bits {
  using V = typename C::V;
  V both, different;
  HWY_INLINE explicit Bits(Rule r)
      : both(all_or_none(typename C::D(), r.both)), different(all_or_none(typename C::D(), r.different)) {}
  MUSTER_INLINE V operator()(V a, V b) const {
    return hn::Or(hn::And(hn::And(a, b), both), hn::And(hn::Xor(a, b), different));
  }
};

// Elements as truths: all bits of a lane, or none. T: the unsigned integer as wide as the element.
template <class T>
struct Truth {
  using Element = T;
  using D = hn::Repartition<T, Bytes>;
  using V = hn::Vec<D>;
  static constexpr int kParts = 1;
  V magnitude;  // the bits that make an element not zero
  V one;        // what true is stored as

  HWY_INLINE Truth(T magnitude_bits, T one_bits)
      : magnitude(hn::Set(D(), magnitude_bits)), one(hn::Set(D(), one_bits)) {}
  MUSTER_INLINE Group<V, 1> decode(VBytes bytes) const {
    const D d;
    return {hn::VecFromMask(d, hn::Ne(hn::And(hn::BitCast(d, bytes), magnitude), hn::Zero(d)))};
  }
  MUSTER_INLINE VBytes encode(const Group<V, 1>& g) const { return hn::BitCast(Bytes(), hn::And(g.v, one)); }
};

template <class T>
HWY_NOINLINE void combine_truths(const ReduceArgs& args, T magnitude, T one, Rule rule) {
  Kernel<Truth<T>, Bits<Truth<T>>, false>(args, Truth<T>(magnitude, one), Bits<Truth<T>>(rule)).run();
}

HWY_NOINLINE void combine_bits(ReduceArgs args, size_t element, Rule rule) {
  using C = Native<uint8_t>;
  args.count *= element;
  Kernel<C, Bits<C>, false>(args, C(), Bits<C>(rule)).run();
}

template <class T, RedOp op>
void bitwise(const ReduceArgs& args) {
  combine_bits(args, sizeof(T), rule_of(op));
}
template <class T, T magnitude, T one, RedOp op>
void logical(const ReduceArgs& args) {
  combine_truths<T>(args, magnitude, one, rule_of(op));
}

using Row = std::array<ReduceFn, 6>;  // by operation, from bit_and on

template <class T, T magnitude, T one>
constexpr Row floats() {
  return {nullptr,
          nullptr,
          nullptr,
          &logical<T, magnitude, one, RedOp::logical_and>,
          &logical<T, magnitude, one, RedOp::logical_or>,
          &logical<T, magnitude, one, RedOp::logical_xor>};
}
template <class T>
constexpr Row integers() {
  Row row = floats<T, static_cast<T>(~T{0}), T{1}>();
  row[0] = &bitwise<T, RedOp::bit_and>;
  row[1] = &bitwise<T, RedOp::bit_or>;
  row[2] = &bitwise<T, RedOp::bit_xor>;
  return row;
}

ReduceFn choose_bits(DataType type, RedOp op) {
  static constexpr Row kTable[kDataTypes] = {
      integers<uint8_t>(),
      integers<uint8_t>(),
      integers<uint32_t>(),
      integers<uint32_t>(),
      integers<uint64_t>(),
      integers<uint64_t>(),
      floats<uint16_t, 0x7fff, 0x3c00>(),
      floats<uint32_t, 0x7fffffff, 0x3f800000>(),
      floats<uint64_t, 0x7fffffffffffffff, 0x3ff0000000000000>(),
      floats<uint16_t, 0x7fff, 0x3f80>(),
      floats<uint8_t, 0x7f, 0x38>(),
      floats<uint8_t, 0x7f, 0x3c>(),
  };
  return kTable[static_cast<size_t>(type)][static_cast<size_t>(op) - static_cast<size_t>(RedOp::bit_and)];
}

}  // namespace
}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster {

ReduceFn bit_kernel(int64_t target, DataType type, RedOp op) {
  using Choose = ReduceFn (*)(DataType, RedOp);
  static constexpr struct {
    int64_t bit;
    Choose choose;
  } kCompiled[] = {
      {HWY_AVX3, HWY_CHOOSE_AVX3(choose_bits)},
      {HWY_AVX2, HWY_CHOOSE_AVX2(choose_bits)},
      {HWY_SSE4, HWY_CHOOSE_SSE4(choose_bits)},
      {HWY_SSSE3, HWY_CHOOSE_SSSE3(choose_bits)},
  };
  Choose choose = &HWY_STATIC_DISPATCH(choose_bits);
  for (const auto& c : kCompiled)
    if (c.bit == target && c.choose) choose = c.choose;
  const ReduceFn kernel = choose(type, op);
  if (!kernel)
    fail(Result::invalid_argument, "{} of {} elements: bitwise operations are for integer types", name_of(op),
         name_of(type));
  return kernel;
}

}  // namespace muster
#endif
