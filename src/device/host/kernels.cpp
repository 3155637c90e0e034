#include "device/host/kernels.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "device/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "device/host/memory-inl.h"
#include "device/host/ops-inl.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {
namespace {

constexpr bool has_bit(uint64_t mask, uint32_t i) { return i < 64 && (mask >> i & 1) != 0; }

// n vectors of bytes to or from consecutive addresses.
template <int n, class Memory>
HWY_INLINE Group<VBytes, n> load(Memory memory, const uint8_t* p) {
  if constexpr (n == 1) {
    return {memory.load(p)};
  } else {
    return {load<n / 2>(memory, p), load<n / 2>(memory, p + n / 2 * kVectorBytes)};
  }
}
template <int n, class Memory>
HWY_INLINE void store(Memory memory, const Group<VBytes, n>& g, uint8_t* p) {
  if constexpr (n == 1) {
    memory.store(g.v, p);
  } else {
    store(memory, g.lo, p);
    store(memory, g.hi, p + n / 2 * kVectorBytes);
  }
}
struct NonTemporal {
  HWY_INLINE void store(VBytes v, uint8_t* p) const { hn::Stream(v, Bytes(), p); }
};

template <class C, int n>
HWY_INLINE auto decode(const Group<VBytes, n>& g) {
  if constexpr (n == 1) {
    return C::decode(g.v);
  } else {
    return Group<typename C::V, n * C::kParts>{decode<C>(g.lo), decode<C>(g.hi)};
  }
}
template <class C, int n>
HWY_INLINE auto encode(const Group<typename C::V, n>& g) {
  if constexpr (n == C::kParts) {
    return Group<VBytes, 1>{C::encode(g)};
  } else {
    return Group<VBytes, n / C::kParts>{encode<C>(g.lo), encode<C>(g.hi)};
  }
}

// Combines [at, at + n vectors) of all sources and writes it to all destinations. Offsets are bytes.
// kScaled: with weights and divisor, as `args` says.
template <class C, template <class> class Op, bool kScaled>
class Kernel {
 public:
  // Vectors per turn of the main loop: as many as leave the accumulators in 16 registers.
  static constexpr int kUnroll = HWY_TARGET == HWY_EMU128 || C::kParts >= 4 ? 1 : 4 / C::kParts;
  // The sum of two is what most steps of most algorithms do: loops without counters for it.
  static constexpr bool kFixedShapes = kUnroll > 1 && std::is_same_v<Op<C>, Sum<C>> && !kScaled;

  HWY_INLINE explicit Kernel(const ReduceArgs& args)
      : sources_(reinterpret_cast<const uint8_t* const*>(args.sources)),
        destinations_(reinterpret_cast<uint8_t* const*>(args.destinations)),
        args_(args) {}

  HWY_INLINE void run() const {
    const size_t end = args_.count * sizeof(typename C::Element);
    if (end < kVectorBytes) {
      if (end != 0) part(0, end);
      return;
    }
    if constexpr (kFixedShapes) {
      if (args_.nsources == 2 && args_.streamed == 0) {
        if (args_.ndestinations == 1) return range<2, 1>(0, end, 0);
        if (args_.ndestinations == 2) return range<2, 2>(0, end, 0);
      }
    }
    any_shape(end);
  }

 private:
  // Non-temporal stores need aligned addresses: start where the first streamed destination is aligned; of the
  // others, those that aren't are written as usual.
  HWY_NOINLINE void any_shape(size_t end) const {
    size_t begin = 0;
    uint64_t streamed = 0;
    const uint32_t masked = args_.streamed == 0 ? 0 : std::min(args_.ndestinations, 64u);
    for (uint32_t d = 0; d < masked; ++d) {
      const size_t off = misalignment(destinations_[d]);
      if (!has_bit(args_.streamed, d) || off % sizeof(typename C::Element) != 0) continue;
      const size_t peel = (kVectorBytes - off) % kVectorBytes;
      if (streamed == 0) begin = peel;
      if (peel == begin) streamed |= uint64_t{1} << d;
    }
    if (begin != 0) part(0, begin);
    range<0, 0>(begin, end, streamed);
    if (streamed != 0) hwy::FlushStream();
  }

  // kSources, kDestinations: their number, or 0 if it is only known at run time.
  template <uint32_t kSources, uint32_t kDestinations>
  HWY_INLINE void range(size_t at, size_t end, uint64_t streamed) const {
    if constexpr (kUnroll > 1) {
      for (; end - at >= kUnroll * kVectorBytes; at += kUnroll * kVectorBytes) {
        put<kDestinations>(WholeVector(), combine<kSources, kUnroll>(WholeVector(), at), at, streamed);
      }
    }
    for (; end - at >= kVectorBytes; at += kVectorBytes) {
      put<kDestinations>(WholeVector(), combine<kSources, 1>(WholeVector(), at), at, streamed);
    }
    if (at != end) part(at, end - at);
  }

  // n < kVectorBytes
  HWY_NOINLINE void part(size_t at, size_t n) const {
    const FirstBytes memory{n};
    put<0>(memory, combine<0, 1>(memory, at), at, 0);
  }

  template <uint32_t kSources, int n, class Memory>
  HWY_INLINE Group<VBytes, n> combine(Memory memory, size_t at) const {
    const uint32_t nsources = kSources != 0 ? kSources : args_.nsources;
    auto acc = input<n>(memory, 0, at);
    for (uint32_t j = 1; j < nsources; ++j) acc = zip(Op<C>(), acc, input<n>(memory, j, at));
    if constexpr (kScaled) {
      if (args_.divisor != 0) acc = map(Divide<C>(args_.divisor), acc);
    }
    return encode<C>(acc);
  }

  template <int n, class Memory>
  HWY_INLINE Group<typename C::V, n * C::kParts> input(Memory memory, uint32_t j, size_t at) const {
    const auto x = decode<C>(load<n>(memory, sources_[j] + at));
    if constexpr (kScaled) {
      if (has_bit(args_.weighted, j)) return map(With<Prod<C>, typename C::V>{weight()}, x);
    }
    return x;
  }

  HWY_INLINE typename C::V weight() const {
    using T = typename C::Element;
    const auto bits = static_cast<hwy::MakeUnsigned<T>>(args_.weight_bits);
    const hn::Repartition<hwy::MakeUnsigned<T>, Bytes> d;
    auto g = C::decode(hn::BitCast(Bytes(), hn::Set(d, bits)));
    return first(g);
  }
  template <class V, int n>
  static HWY_INLINE V first(const Group<V, n>& g) {
    if constexpr (n == 1) {
      return g.v;
    } else {
      return first(g.lo);
    }
  }

  template <uint32_t kDestinations, int n, class Memory>
  HWY_INLINE void put(Memory memory, const Group<VBytes, n>& g, size_t at, uint64_t streamed) const {
    const uint32_t ndestinations = kDestinations != 0 ? kDestinations : args_.ndestinations;
    for (uint32_t d = 0; d < ndestinations; ++d) {
      uint8_t* const p = destinations_[d] + at;
      if (kDestinations == 0 && has_bit(streamed, d)) {
        store(NonTemporal(), g, p);
      } else {
        store(memory, g, p);
      }
    }
  }

  const uint8_t* const* sources_;
  uint8_t* const* destinations_;
  const ReduceArgs& args_;
};

template <class C, template <class> class Op>
void reduce(const ReduceArgs& args) {
  Kernel<C, Op, false>(args).run();
}

// Sums of signed and unsigned integers are the same bits; what follows the sum is not.
template <class Plain, class Scaled>
void reduce_sum(const ReduceArgs& args) {
  if ((args.weighted | args.divisor) == 0) {
    Kernel<Plain, Sum, false>(args).run();
  } else {
    Kernel<Scaled, Sum, true>(args).run();
  }
}

template <class C, class Unsigned = C>
constexpr std::array<ReduceFn, 4> kernels_of() {
  return {&reduce_sum<Unsigned, C>, &reduce<Unsigned, Prod>, &reduce<C, Max>, &reduce<C, Min>};
}

ReduceFn choose(DataType type, RedOp op) {
  static constexpr std::array<ReduceFn, 4> kTable[kDataTypes] = {
      kernels_of<Native<int8_t>, Native<uint8_t>>(),
      kernels_of<Native<uint8_t>>(),
      kernels_of<Native<int32_t>, Native<uint32_t>>(),
      kernels_of<Native<uint32_t>>(),
      kernels_of<Native<int64_t>, Native<uint64_t>>(),
      kernels_of<Native<uint64_t>>(),
      kernels_of<Float16>(),
      kernels_of<Native<float>>(),
      kernels_of<Native<double>>(),
      kernels_of<Bfloat16>(),
      kernels_of<Small<Float8E4m3Format>>(),
      kernels_of<Small<Float8E5m2Format>>(),
  };
  const RedOp base = op == RedOp::avg || op == RedOp::pre_mul_sum ? RedOp::sum : op;
  return kTable[static_cast<int>(type)][static_cast<int>(base)];
}

}  // namespace
}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster {
namespace {

struct Target {
  int64_t bit = 0;
  ReduceFn (*choose)(DataType, RedOp) = nullptr;
};

// Compiled in, best first and the one that runs everywhere last; a null `choose` is one that isn't compiled
// in.
constexpr Target kCompiled[] = {
    {HWY_AVX3, HWY_CHOOSE_AVX3(choose)},
    {HWY_AVX2, HWY_CHOOSE_AVX2(choose)},
    {HWY_SSE4, HWY_CHOOSE_SSE4(choose)},
    {HWY_SSSE3, HWY_CHOOSE_SSSE3(choose)},
    {HWY_STATIC_TARGET, &HWY_STATIC_DISPATCH(choose)},
};

struct Targets {
  Target list[std::size(kCompiled)];
  int count = 0;

  Targets() {
    const int64_t runs = hwy::SupportedTargets() | HWY_STATIC_TARGET;
    for (const Target& t : kCompiled) {
      const bool listed = count > 0 && list[count - 1].choose == t.choose;
      if (t.choose != nullptr && (t.bit & runs) != 0 && !listed) list[count++] = t;
    }
  }
};

const Targets& targets() {
  static const Targets t;
  return t;
}

}  // namespace

ReduceFn reduce_kernel_of_target(int target, DataType type, RedOp op) {
  const auto t = static_cast<unsigned>(type), o = static_cast<unsigned>(op);
  if (t >= kDataTypes || o >= kRedOps || target < 0 || target >= targets().count) {
    fail(Result::invalid_argument, "no host kernel for data type {}, reduction {}, instruction set {} of {}",
         t, o, target, targets().count);
  }
  return targets().list[target].choose(type, op);
}

ReduceFn reduce_kernel(DataType type, RedOp op) { return reduce_kernel_of_target(0, type, op); }

int kernel_target_count() { return targets().count; }

const char* kernel_target_name(int target) { return hwy::TargetName(targets().list[target].bit); }

}  // namespace muster
#endif
