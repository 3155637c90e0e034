// Loads and stores that other GPUs and the host take part in: in system scope.
#pragma once

#include <cstdint>

namespace muster::cuda {

__device__ inline uint64_t load_acquire(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline void store_release(uint64_t* p, uint64_t v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
}
__device__ inline uint32_t load_relaxed(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline void store_relaxed(int64_t* p, int64_t v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
}

// Two words of 8 bytes by one access. Each is whole, but they may become visible one before the other: PTX
// takes a vector for so many accesses of its elements, in any order.
struct alignas(16) Pair {
  uint64_t a, b;
};
__device__ inline Pair load_pair(const Pair* p) {
  Pair v;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.a), "=l"(v.b) : "l"(p) : "memory");
  return v;
}
__device__ inline void store_pair(Pair* p, Pair v) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" : : "l"(p), "l"(v.a), "l"(v.b) : "memory");
}

}  // namespace muster::cuda
