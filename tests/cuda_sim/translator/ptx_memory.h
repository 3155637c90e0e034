// PTX's accesses to memory.
#pragma once

#include <immintrin.h>

#include "../runtime/execution.h"
#include "ptx_arithmetic.h"

using namespace cuda_sim;

IN void spin(Thread* T, int cost) {
  if ((T->budget -= cost) < 0) csim_yield();
}
#define LOOP() spin(T, 1)

#if defined(__SANITIZE_THREAD__)  // the scheduler's counts must not show up in the race checker
#define COUNT(T, kind) csim_race_count(T, kind)
#define RACE_LOAD(a, order) \
  if (order == __ATOMIC_RELAXED) csim_race_load((void*)(a))
#define RACE_STORE(a, order) \
  if (order == __ATOMIC_RELAXED) csim_race_store((void*)(a))
#else
#define COUNT(T, kind) T->events[kind]++
#define RACE_LOAD(a, order)
#define RACE_STORE(a, order)
#endif

// Strict mode: where the bytes of a device's address are; see runtime.h.
extern "C" uint64_t csim_window, csim_window_size, csim_window_delta;
IN u64 mapped(u64 a) { return a - csim_window < csim_window_size ? a + csim_window_delta : a; }
IN char* mapped_bytes(u64 a) { return (char*)mapped(a); }

// Shared memory of the block, and local memory, which is on the fiber's stack.
IN bool own_memory(u64 a, Thread* T) {
  return a - (u64)T->shared < kSharedWindow || a - ((u64)__builtin_frame_address(0) - 65536) < 131072;
}
IN u64 global(u64 a, u32 bytes, Thread* T) {
#ifdef CSIM_CHECK
  if (!own_memory(a, T)) csim_check_access(a, bytes, T);
#endif
  (void)bytes;
  (void)T;
  return mapped(a);
}

#ifdef CSIM_PEER_FAULT  // see faults.h
extern "C" int csim_peer_fault(u64 a);
enum { kNoFault, kDrop, kGarbage };
template <class T>
IN T faulty(u64 a, T value) {  // what a load of a value gives, or a store stores
  int fault = csim_peer_fault(a);
  if (fault == kNoFault) return value;
  unsigned char bytes[sizeof(T)];
  memcpy(bytes, &value, sizeof value);
  for (unsigned char& b : bytes) b = fault == kDrop ? 0xff : b ^ 0x5a;
  memcpy(&value, bytes, sizeof value);
  return value;
}
IN bool dropped(u64 a) { return csim_peer_fault(a) == kDrop; }
#else
template <class T>
IN T faulty(u64, T value) {
  return value;
}
IN bool dropped(u64) { return false; }
#endif

template <class V>
IN V load(u64 a) {
  V v;
  memcpy(&v, (void*)a, sizeof v);
  return faulty(a, v);
}
template <class V>
IN void store(u64 a, V v) {
  if (dropped(a)) return;
  v = faulty(a, v);
  memcpy((void*)a, &v, sizeof v);
}
template <class U, int order>
IN U load_atomic(u64 a, Thread* T) {
  COUNT(T, 1);
  spin(T, 64);
  RACE_LOAD(a, order);
  return faulty(a, __atomic_load_n((U*)a, order));
}
template <class U, int order>
IN void store_atomic(u64 a, U v, Thread* T) {
  COUNT(T, 0);
  if (dropped(a)) return;
  RACE_STORE(a, order);
  __atomic_store_n((U*)a, faulty(a, v), order);
}

// CUDASIM_SPLIT: 16-byte accesses fall into two 8-byte ones, in either order and maybe with other threads in
// between, for PTX promises no more. A protocol that needs 16 bytes at once then fails.
struct V16 {
  u64 lo, hi;
};
extern "C" int csim_split;
IN V16 load_halves(u64 a) {
  u32 r = csim_random(), first = r & 1;
  u64 half[2];
  half[first] = __atomic_load_n((u64*)a + first, __ATOMIC_RELAXED);
  if (r & 2) csim_yield();
  half[1 - first] = __atomic_load_n((u64*)a + 1 - first, __ATOMIC_RELAXED);
  return {half[0], half[1]};
}
IN void store_halves(u64 a, V16 v) {
  u32 r = csim_random(), first = r & 1;
  u64 half[2] = {v.lo, v.hi};
  __atomic_store_n((u64*)a + first, half[first], __ATOMIC_RELAXED);
  if (r & 2) csim_yield();
  __atomic_store_n((u64*)a + 1 - first, half[1 - first], __ATOMIC_RELAXED);
}
IN V16 load16(u64 a, Thread* T) {
  COUNT(T, 1);
  spin(T, 64);
#if defined(__SANITIZE_THREAD__)
  RACE_LOAD(a, __ATOMIC_RELAXED);
  RACE_LOAD(a + 8, __ATOMIC_RELAXED);
  return {__atomic_load_n((u64*)a, __ATOMIC_RELAXED), __atomic_load_n((u64*)a + 1, __ATOMIC_RELAXED)};
#else
  V16 v;
  if (__builtin_expect(csim_split, 0)) {
    v = load_halves(a);
  } else {
    __m128i x = _mm_load_si128((const __m128i*)a);
    asm volatile("" : "+x"(x) : : "memory");
    memcpy(&v, &x, 16);
  }
  return faulty(a, v);
#endif
}
IN void store16(u64 a, V16 v) {
  if (dropped(a)) return;
  v = faulty(a, v);
#if defined(__SANITIZE_THREAD__)
  RACE_STORE(a, __ATOMIC_RELAXED);
  RACE_STORE(a + 8, __ATOMIC_RELAXED);
  __atomic_store_n((u64*)a, v.lo, __ATOMIC_RELAXED);
  __atomic_store_n((u64*)a + 1, v.hi, __ATOMIC_RELAXED);
#else
  if (__builtin_expect(csim_split, 0)) return store_halves(a, v);
  __m128i x;
  memcpy(&x, &v, 16);
  asm volatile("" : "+x"(x) : : "memory");
  _mm_store_si128((__m128i*)a, x);
  asm volatile("" : : : "memory");
#endif
}
// Any atomic operation, by compare-and-swap.
template <class V, class F>
IN V update(u64 a, F f, Thread* T) {
  using U = std::conditional_t<sizeof(V) == 8, u64, std::conditional_t<sizeof(V) == 4, u32, u16>>;
  spin(T, 16);
  COUNT(T, 0);
  U old = __atomic_load_n((U*)a, __ATOMIC_RELAXED);
  if (dropped(a)) return as<V>(faulty(a, old));
  for (;;) {
    V v = f(as<V>(old));
    U bits;
    memcpy(&bits, &v, sizeof bits);
    bits = faulty(a, bits);
    if (__atomic_compare_exchange_n((U*)a, &old, bits, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
      return as<V>(faulty(a, old));
  }
}
IN void copy_to_shared(u64 to, u64 from, u32 bytes) {  // cp.async, which copies at once
  for (u32 i = 0; i < bytes; i++) store<u8>(to + i, load<u8>(from + i));
}
IN void fence() {
#if defined(__SANITIZE_THREAD__)
  csim_race_fence();
#endif
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
