// Copies of a few bytes without a call: two fixed-size moves that may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace muster {

template <size_t n>
[[gnu::always_inline]] inline void copy_both_ends(uint8_t* to, const uint8_t* from, size_t bytes) {
  struct Block {
    uint8_t b[n];
  } first, last;
  std::memcpy(&first, from, n);
  std::memcpy(&last, from + bytes - n, n);
  std::memcpy(to, &first, n);
  std::memcpy(to + bytes - n, &last, n);
}

// bytes < limit, a power of two up to 64
template <size_t limit>
[[gnu::always_inline]] inline void small_copy(uint8_t* to, const uint8_t* from, size_t bytes) {
  static_assert(limit <= 64);
  if constexpr (limit > 1) {
    if (bytes >= limit / 2) {
      copy_both_ends<limit / 2>(to, from, bytes);
    } else {
      small_copy<limit / 2>(to, from, bytes);
    }
  }
}

}  // namespace muster
