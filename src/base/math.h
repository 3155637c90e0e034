// Small integer arithmetic shared by layers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

constexpr size_t kCacheLine = 64;

constexpr size_t ceil_div(size_t a, size_t b) { return a / b + (a % b != 0); }
constexpr size_t align_up(size_t a, size_t b) { return ceil_div(a, b) * b; }

// A well-mixed 64-bit value from a 64-bit value (the finaliser of MurmurHash3).
constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}
constexpr uint64_t hash_combine(uint64_t seed, uint64_t value) { return mix64(seed * 0x9e3779b97f4a7c15ULL + value); }

}  // namespace muster
