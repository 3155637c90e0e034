// Products of row-major matrices in fp32, added to what is there. Plain loops that compilers vectorize; sums
// run over the inner dimension in order, so that a result depends on nothing but its row and column.
#pragma once

#include <cstddef>

namespace train {

// c[m, n] += a[m, k] b[k, n]
inline void add_product(const float* a, const float* b, float* c, size_t m, size_t k, size_t n) {
  for (size_t i = 0; i < m; ++i)
    for (size_t x = 0; x < k; ++x) {
      const float f = a[i * k + x];
      for (size_t j = 0; j < n; ++j) c[i * n + j] += f * b[x * n + j];
    }
}

// c[m, n] += a[m, k] b[n, k]^T
inline void add_product_by_transposed(const float* a, const float* b, float* c, size_t m, size_t k,
                                      size_t n) {
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      float lanes[8] = {};  // one sum would keep the loop from being vectorized
      size_t x = 0;
      for (; x + 8 <= k; x += 8)
        for (size_t l = 0; l < 8; ++l) lanes[l] += a[i * k + x + l] * b[j * k + x + l];
      for (; x < k; ++x) lanes[0] += a[i * k + x] * b[j * k + x];
      c[i * n + j] +=
          ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
    }
}

// c[k, n] += a[m, k]^T b[m, n]
inline void add_product_of_transposed(const float* a, const float* b, float* c, size_t m, size_t k,
                                      size_t n) {
  for (size_t i = 0; i < m; ++i)
    for (size_t x = 0; x < k; ++x) {
      const float f = a[i * k + x];
      for (size_t j = 0; j < n; ++j) c[x * n + j] += f * b[i * n + j];
    }
}

}  // namespace train
