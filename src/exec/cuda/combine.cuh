// One pass of a block over memory: k sources combined into d destinations, 16 bytes per access and several
// accesses of a thread in flight. Where not all addresses are equally far from a multiple of 16, and at the
// ends, elements go one by one.
//
// Where messages are of lines, a thread takes 8 bytes of all sources, waiting for those that haven't come,
// and stores them to all destinations. Such passes return false where the kernel is to end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/cuda/codecs.cuh"
#include "exec/cuda/waiting.cuh"
#include "muster/types.h"

namespace muster::cuda {

// Elements before the first address that is a multiple of kVector, and how many vectors follow them; of a
// pass whose addresses differ by multiples of it.
struct Extent {
  uint64_t head, vectors;
};
template <class Element>
__device__ Extent whole_vectors(const Pass& p) {
  constexpr uint64_t kLanes = kVector / sizeof(Element);
  const auto off = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p.at[0]) % kVector);
  if (p.apart % kVector != 0 || off % sizeof(Element) != 0) return {p.count, 0};
  uint64_t head = (kVector - off) % kVector / sizeof(Element);
  if (head > p.count) head = p.count;
  return {head, (p.count - head) / kLanes};
}

template <class Element, int kLanes>
struct alignas(sizeof(Element) * kLanes) Words {
  Element e[kLanes];
};

// Calls batch(first, step, n) so that each thread's accesses first, first + step ... below n cover [0, n)
// with the others'.
template <int kDepth, class Batch>
__device__ void in_batches(uint64_t n, const Batch& batch) {
  for (uint64_t first = threadIdx.x; first < n; first += uint64_t{kDepth} * blockDim.x) batch(first, n);
}

// --- copies ---

// From byte `begin` on, n words of type T to every destination but the source itself.
template <class T, int kDepth>
__device__ void copy_words(const Pass& p, uint64_t begin, uint64_t words) {
  const auto* const from = reinterpret_cast<const T*>(static_cast<const std::byte*>(p.at[0]) + begin);
  in_batches<kDepth>(words, [&](uint64_t first, uint64_t n) {
    T x[kDepth];
#pragma unroll
    for (int k = 0; k < kDepth; ++k)
      if (const uint64_t i = first + k * blockDim.x; i < n) x[k] = from[i];
    for (uint32_t d = 0; d < p.destinations; ++d) {
      void* const to = p.at[1 + d];
      if (to == p.at[0]) continue;  // in place; peers may read it now
      auto* const there = reinterpret_cast<T*>(static_cast<std::byte*>(to) + begin);
#pragma unroll
      for (int k = 0; k < kDepth; ++k)
        if (const uint64_t i = first + k * blockDim.x; i < n) there[i] = x[k];
    }
  });
}

__device__ inline void copy(const Pass& p, uint64_t bytes) {
  if (p.apart % kVector != 0) {
    const auto off = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p.at[0]));
    if (((p.apart | off | bytes) & 3) == 0) return copy_words<uint32_t, 4>(p, 0, bytes / 4);
    return copy_words<uint8_t, 4>(p, 0, bytes);
  }
  Pass const& same = p;
  const auto off = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p.at[0]) % kVector);
  uint64_t head = (kVector - off) % kVector;
  if (head > bytes) head = bytes;
  const uint64_t vectors = (bytes - head) / kVector, body = vectors * kVector;
  copy_words<uint8_t, 1>(same, 0, head);
  copy_words<uint4, 4>(same, head, vectors);
  copy_words<uint8_t, 1>(same, head + body, bytes - head - body);
}

// Calls line(i, n) for this thread's lines: the i-th of `count` elements T, n of which are in it.
template <class T, class Line>
__device__ bool for_lines(uint64_t count, const Line& line) {
  constexpr uint32_t kElements = kLineData / sizeof(T);
  for (uint64_t i = threadIdx.x; i * kElements < count; i += blockDim.x) {
    const uint64_t left = count - i * kElements;
    if (!line(i, left < kElements ? static_cast<uint32_t>(left) : kElements)) return false;
  }
  return true;
}

__device__ inline bool copy_lines(const KernelArgs& a, Pass& p, uint64_t bytes) {
  return for_lines<uint8_t>(bytes, [&](uint64_t i, uint32_t n) {
    uint64_t word;
    if (!fetch_word<uint8_t>(a, p, 0, i, n, word)) return false;
    for (uint32_t d = 1; d <= p.destinations; ++d)
      if (p.at[d] != p.at[0]) store_word<uint8_t>(p, d, i, n, word);
    return true;
  });
}

// --- arithmetic ---

template <class C>
struct Arithmetic {
  using Element = typename C::Element;
  using Lane = typename C::Lane;
  static constexpr int kLanes = kVector / sizeof(Element);
  // Accesses in flight: as many as leave 32 accumulators in registers.
  static constexpr int kDepth = kLanes >= 16 ? 1 : kLanes >= 8 ? 2 : 4;

  static __device__ void run(const Pass& p) {
    const Extent e = whole_vectors<Element>(p);
    elements<1, 2>(p, 0, e.head);
    if (e.vectors != 0) elements<kLanes, kDepth>(p, e.head, e.vectors);
    const uint64_t end = e.head + e.vectors * kLanes;
    elements<1, 2>(p, end, p.count - end);
  }

  static __device__ bool run_lines(const KernelArgs& a, Pass& p) {
    constexpr int kOfLine = kLineData / sizeof(Element);
    return for_lines<Element>(p.count, [&](uint64_t i, uint32_t n) {
      Lane acc[kOfLine];
      for (uint32_t j = 0; j < p.sources; ++j) {
        uint64_t word;
        if (!fetch_word<Element>(a, p, j, i, n, word)) return false;
        Words<Element, kOfLine> in;
        memcpy(&in, &word, sizeof in);
        Lane x[kOfLine];
#pragma unroll
        for (int k = 0; k < kOfLine; ++k) x[k] = C::decode(in.e[k]);
        weigh(p, j, x);
        if (j != 0) {
          combine(p.op, acc, x);
        } else {
#pragma unroll
          for (int k = 0; k < kOfLine; ++k) acc[k] = x[k];
        }
      }
      if (p.divisor != 0) {
#pragma unroll
        for (Lane& x : acc) x = divide(x, p.divisor);
      }
      Words<Element, kOfLine> out;
#pragma unroll
      for (int k = 0; k < kOfLine; ++k) out.e[k] = C::encode(acc[k]);
      uint64_t word;
      memcpy(&word, &out, sizeof word);
      for (uint32_t d = 0; d < p.destinations; ++d) store_word<Element>(p, p.sources + d, i, n, word);
      return true;
    });
  }

 private:
  // `accesses` of kWidth elements each, from element `begin` on.
  template <int kWidth, int kDeep>
  static __device__ void elements(const Pass& p, uint64_t begin, uint64_t accesses) {
    using Access = Words<Element, kWidth>;
    in_batches<kDeep>(accesses, [&](uint64_t first, uint64_t n) {
      Lane acc[kDeep * kWidth];
      load<kWidth, kDeep>(p, 0, begin, first, n, acc);
      for (uint32_t j = 1; j < p.sources; ++j) {
        Lane x[kDeep * kWidth];
        load<kWidth, kDeep>(p, j, begin, first, n, x);
        combine(p.op, acc, x);
      }
      if (p.divisor != 0) {
#pragma unroll
        for (Lane& a : acc) a = divide(a, p.divisor);
      }
      Access out[kDeep];
#pragma unroll
      for (int i = 0; i < kDeep * kWidth; ++i) out[i / kWidth].e[i % kWidth] = C::encode(acc[i]);
      for (uint32_t d = 0; d < p.destinations; ++d) {
        auto* const to = reinterpret_cast<Access*>(static_cast<Element*>(p.at[p.sources + d]) + begin);
#pragma unroll
        for (int k = 0; k < kDeep; ++k)
          if (const uint64_t i = first + k * blockDim.x; i < n) store(to + i, out[k]);
      }
    });
  }

  template <int kWidth, int kDeep>
  static __device__ void load(const Pass& p, uint32_t j, uint64_t begin, uint64_t first, uint64_t n,
                              Lane (&lanes)[kDeep * kWidth]) {
    using Access = Words<Element, kWidth>;
    const auto* const from = reinterpret_cast<const Access*>(static_cast<const Element*>(p.at[j]) + begin);
    Access in[kDeep];
#pragma unroll
    for (int k = 0; k < kDeep; ++k) {
      const uint64_t i = first + k * blockDim.x;
      in[k] = i < n ? fetch(from + i) : Access{};
    }
#pragma unroll
    for (int i = 0; i < kDeep * kWidth; ++i) lanes[i] = C::decode(in[i / kWidth].e[i % kWidth]);
    weigh(p, j, lanes);
  }

  template <int n>
  static __device__ void weigh(const Pass& p, uint32_t j, Lane (&lanes)[n]) {
    if (j >= 64 || (p.weighted >> j & 1) == 0) return;
    const Lane weight = C::decode(weight_of(p.weight_bits));
#pragma unroll
    for (Lane& x : lanes) x = multiply<C>(x, weight);
  }

  template <int n>
  static __device__ void combine(uint32_t op, Lane (&acc)[n], const Lane (&x)[n]) {
    switch (static_cast<RedOp>(op)) {
      case RedOp::prod:
#pragma unroll
        for (int i = 0; i < n; ++i) acc[i] = multiply<C>(acc[i], x[i]);
        break;
      case RedOp::max:
#pragma unroll
        for (int i = 0; i < n; ++i) acc[i] = larger(acc[i], x[i]);
        break;
      case RedOp::min:
#pragma unroll
        for (int i = 0; i < n; ++i) acc[i] = smaller(acc[i], x[i]);
        break;
      default:  // sum, avg, pre_mul_sum
#pragma unroll
        for (int i = 0; i < n; ++i) acc[i] = add(acc[i], x[i]);
    }
  }

  static __device__ Element weight_of(uint64_t bits) {
    if constexpr (std::is_same_v<Element, float>)
      return __uint_as_float(static_cast<uint32_t>(bits));
    else if constexpr (std::is_same_v<Element, double>)
      return __longlong_as_double(static_cast<long long>(bits));
    else
      return static_cast<Element>(bits);
  }

  // One access: the compiler would split a struct of small elements.
  template <int kWidth>
  static __device__ Words<Element, kWidth> fetch(const Words<Element, kWidth>* from) {
    if constexpr (sizeof(*from) == kVector) {
      const uint4 v = *reinterpret_cast<const uint4*>(from);
      Words<Element, kWidth> w;
      memcpy(&w, &v, sizeof w);
      return w;
    } else {
      return *from;
    }
  }
  template <int kWidth>
  static __device__ void store(Words<Element, kWidth>* to, const Words<Element, kWidth>& w) {
    if constexpr (sizeof(*to) == kVector) {
      uint4 v;
      memcpy(&v, &w, sizeof v);
      *reinterpret_cast<uint4*>(to) = v;
    } else {
      *to = w;
    }
  }
};

// --- bitwise and logical operations ---

// On unsigned integers as wide as the elements. A logical operation first makes each element `one` or 0: bits
// that make it not zero are in `magnitude`.
template <class T>
struct BitOperations {
  static constexpr int kLanes = kVector / sizeof(T);

  static __device__ void run(const Pass& p, T magnitude, T one) {
    const Extent e = whole_vectors<T>(p);
    elements<1, 2>(p, 0, e.head, magnitude, one);
    elements<kLanes, 2>(p, e.head, e.vectors, magnitude, one);
    const uint64_t end = e.head + e.vectors * kLanes;
    elements<1, 2>(p, end, p.count - end, magnitude, one);
  }

  static __device__ bool run_lines(const KernelArgs& a, Pass& p, T magnitude, T one) {
    constexpr int kOfLine = kLineData / sizeof(T);
    const auto op = static_cast<RedOp>(p.op);
    const bool is_and = op == RedOp::bit_and || op == RedOp::logical_and;
    const bool is_xor = op == RedOp::bit_xor || op == RedOp::logical_xor;
    return for_lines<T>(p.count, [&](uint64_t i, uint32_t n) {
      uint64_t acc = 0;
      for (uint32_t j = 0; j < p.sources; ++j) {
        uint64_t x;
        if (!fetch_word<T>(a, p, j, i, n, x)) return false;
        if (one != 0) {
          Words<T, kOfLine> w;
          memcpy(&w, &x, sizeof w);
#pragma unroll
          for (T& v : w.e) v = (v & magnitude) != 0 ? one : T{0};
          memcpy(&x, &w, sizeof x);
        }
        acc = j == 0 ? x : is_and ? acc & x : is_xor ? acc ^ x : acc | x;
      }
      for (uint32_t d = 0; d < p.destinations; ++d) store_word<T>(p, p.sources + d, i, n, acc);
      return true;
    });
  }

 private:
  template <int kWidth, int kDeep>
  static __device__ void elements(const Pass& p, uint64_t begin, uint64_t accesses, T magnitude, T one) {
    using Access = Words<T, kWidth>;
    const auto op = static_cast<RedOp>(p.op);
    const bool is_and = op == RedOp::bit_and || op == RedOp::logical_and;
    const bool is_xor = op == RedOp::bit_xor || op == RedOp::logical_xor;
    in_batches<kDeep>(accesses, [&](uint64_t first, uint64_t n) {
      Access acc[kDeep];
      for (uint32_t j = 0; j < p.sources; ++j) {
        const auto* const from = reinterpret_cast<const Access*>(static_cast<const T*>(p.at[j]) + begin);
#pragma unroll
        for (int k = 0; k < kDeep; ++k) {
          const uint64_t i = first + k * blockDim.x;
          if (i >= n) continue;
          Access x = from[i];
#pragma unroll
          for (int lane = 0; lane < kWidth; ++lane) {
            T& v = x.e[lane];
            if (one != 0) v = (v & magnitude) != 0 ? one : T{0};
            const T a = acc[k].e[lane];
            if (j == 0)
              acc[k].e[lane] = v;
            else
              acc[k].e[lane] = is_and ? a & v : is_xor ? a ^ v : a | v;
          }
        }
      }
      for (uint32_t d = 0; d < p.destinations; ++d) {
        auto* const to = reinterpret_cast<Access*>(static_cast<T*>(p.at[p.sources + d]) + begin);
#pragma unroll
        for (int k = 0; k < kDeep; ++k)
          if (const uint64_t i = first + k * blockDim.x; i < n) to[i] = acc[k];
      }
    });
  }
};

}  // namespace muster::cuda
