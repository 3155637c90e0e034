#include "kernels.h"

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace loop {
namespace {

#ifdef __AVX512F__
using Vector = __m512;
Vector load(const float* p) { return _mm512_loadu_ps(p); }
void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
void stream(float* p, Vector v) { _mm512_stream_ps(p, v); }
#elif defined(__AVX__)
using Vector = __m256;
Vector load(const float* p) { return _mm256_loadu_ps(p); }
void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
void stream(float* p, Vector v) { _mm256_stream_ps(p, v); }
#else
using Vector = __m128;
Vector load(const float* p) { return _mm_loadu_ps(p); }
void store(float* p, Vector v) { _mm_storeu_ps(p, v); }
void stream(float* p, Vector v) { _mm_stream_ps(p, v); }
#endif

constexpr size_t kLanes = sizeof(Vector) / sizeof(float);
constexpr size_t kUnroll = 4;

bool aligned(const float* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(Vector) == 0; }

// body(i) handles one vector at element i, rest(i) one element.
template <typename Body, typename Rest>
inline __attribute__((always_inline)) void sweep(size_t n, Body body, Rest rest) {
  size_t i = 0;
  for (; i + kUnroll * kLanes <= n; i += kUnroll * kLanes) {
    body(i), body(i + kLanes), body(i + 2 * kLanes), body(i + 3 * kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) body(i);
  for (; i < n; ++i) rest(i);
}

}  // namespace

void copy(float* dst, const float* src, size_t n) {
  sweep(
      n, [&](size_t i) { store(dst + i, load(src + i)); }, [&](size_t i) { dst[i] = src[i]; });
}

void add(float* dst, const float* a, const float* b, size_t n) {
  sweep(
      n, [&](size_t i) { store(dst + i, load(a + i) + load(b + i)); },
      [&](size_t i) { dst[i] = a[i] + b[i]; });
}

void add_to_two(float* dst, float* dst2, const float* a, const float* b, size_t n) {
  sweep(
      n,
      [&](size_t i) {
        const Vector sum = load(a + i) + load(b + i);
        store(dst + i, sum);
        store(dst2 + i, sum);
      },
      [&](size_t i) { dst[i] = dst2[i] = a[i] + b[i]; });
}

void stream_copy(float* dst, const float* src, size_t n) {
  if (!aligned(dst)) return copy(dst, src, n);
  sweep(
      n, [&](size_t i) { stream(dst + i, load(src + i)); }, [&](size_t i) { dst[i] = src[i]; });
  _mm_sfence();
}

void stream_add_to_two(float* dst, float* dst2, const float* a, const float* b, size_t n) {
  if (!aligned(dst) || !aligned(dst2)) return add_to_two(dst, dst2, a, b, n);
  sweep(
      n,
      [&](size_t i) {
        const Vector sum = load(a + i) + load(b + i);
        stream(dst + i, sum);
        stream(dst2 + i, sum);
      },
      [&](size_t i) { dst[i] = dst2[i] = a[i] + b[i]; });
  _mm_sfence();
}

void stream_add_and_store(float* dst, float* kept, const float* a, const float* b, size_t n) {
  if (!aligned(dst)) return add_to_two(dst, kept, a, b, n);
  sweep(
      n,
      [&](size_t i) {
        const Vector sum = load(a + i) + load(b + i);
        stream(dst + i, sum);
        store(kept + i, sum);
      },
      [&](size_t i) { dst[i] = kept[i] = a[i] + b[i]; });
  _mm_sfence();
}

}  // namespace loop
