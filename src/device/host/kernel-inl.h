// One pass over memory: k sources combined into d destinations, for a codec and an operation. Included once
// per instruction set.
#if defined(MUSTER_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_KERNEL_INL_H_
#undef MUSTER_KERNEL_INL_H_
#else
#define MUSTER_KERNEL_INL_H_
#endif

#include <algorithm>

#include "device/host/kernels.h"
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
HWY_INLINE auto decode(const C& codec, const Group<VBytes, n>& g) {
  if constexpr (n == 1) {
    return codec.decode(g.v);
  } else {
    return Group<typename C::V, n * C::kParts>{decode(codec, g.lo), decode(codec, g.hi)};
  }
}
template <class C, int n>
HWY_INLINE auto encode(const C& codec, const Group<typename C::V, n>& g) {
  if constexpr (n == C::kParts) {
    return Group<VBytes, 1>{codec.encode(g)};
  } else {
    return Group<VBytes, n / C::kParts>{encode(codec, g.lo), encode(codec, g.hi)};
  }
}

// Combines [at, at + n vectors) of all sources and writes it to all destinations. Offsets are bytes.
// kScaled: with weights and divisor, as `args` says.
template <class C, class Op, bool kScaled>
class Kernel {
 public:
  // Vectors per turn of the main loop: as many as leave the accumulators in 16 registers.
  static constexpr int kUnroll = HWY_TARGET == HWY_EMU128 || C::kParts >= 4 ? 1 : 4 / C::kParts;
  // The sum of two is what most steps of most algorithms do: loops without counters for it.
  static constexpr bool kFixedShapes = kUnroll > 1 && std::is_same_v<Op, Sum<C>> && !kScaled;

  HWY_INLINE explicit Kernel(const ReduceArgs& args, const C& codec = {}, const Op& op = {})
      : sources_(reinterpret_cast<const uint8_t* const*>(args.sources)),
        destinations_(reinterpret_cast<uint8_t* const*>(args.destinations)),
        args_(args),
        codec_(codec),
        op_(op) {}

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
    for (uint32_t j = 1; j < nsources; ++j) acc = zip(op_, acc, input<n>(memory, j, at));
    if constexpr (kScaled) {
      if (args_.divisor != 0) acc = map(Divide<C>(args_.divisor), acc);
    }
    return encode(codec_, acc);
  }

  template <int n, class Memory>
  HWY_INLINE Group<typename C::V, n * C::kParts> input(Memory memory, uint32_t j, size_t at) const {
    const auto x = decode(codec_, load<n>(memory, sources_[j] + at));
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
  const C codec_;
  const Op op_;
};

}  // namespace
}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
