// How threads wait for other ranks: for a counter or for a line. Whoever waits for long looks whether the
// host wants kernels to end, and whether what has come is of another call.
#pragma once

#include "exec/cuda/lines.cuh"
#include "exec/cuda/pass.cuh"

namespace muster::cuda {

// Fruitless polls between two looks at the host's memory, which are slow.
inline constexpr uint32_t kPollsPerLook = 256;
// Looks after which the host is told who is waited for.
inline constexpr uint32_t kLooksUntilReport = 64;

__device__ inline Pair* header_of(const KernelEnd& end, uint32_t slots) {
  return reinterpret_cast<Pair*>(end.headers) + end.count % slots;
}

// Whether the end's next message is known to be of another call. The host is told of the first one.
__device__ inline bool is_foreign(const KernelArgs& a, Pass& p, const KernelEnd& end) {
  uint64_t found;
  if (!load_line(header_of(end, a.slots), flag_of(end.count), found) || found == p.fingerprint) return false;
  if (atomicExch(&p.told, 1) == 0) {
    ChannelReport& mine = a.report->channels[blockIdx.x];
    mine.peer = end.peer;
    mine.expected = p.fingerprint;
    mine.found = found;
    store_release(&mine.mismatch, 1);
  }
  return true;
}

__device__ inline int64_t wait_mark(const KernelEnd& end) {
  return static_cast<int64_t>(end.count) << kWaitedRankBits | (end.peer + 1);
}

// Until ready(). False: the kernel is to end. `end()`: whose peer is waited for; `receives`: for its message.
template <class Ready, class End>
__device__ bool wait_until(const KernelArgs& a, Pass& p, bool receives, const Ready& ready, const End& end) {
  for (uint32_t looks = 0;; ++looks) {
    for (uint32_t polls = 0; polls < kPollsPerLook; ++polls)
      if (ready()) {
        if (looks > kLooksUntilReport) store_relaxed(&a.report->channels[blockIdx.x].waits_for, 0);
        return true;
      }
    const KernelEnd& e = end();
    if (load_relaxed(&a.report->abort) != 0 || (receives && is_foreign(a, p, e))) return false;
    if (looks >= kLooksUntilReport)
      store_relaxed(&a.report->channels[blockIdx.x].waits_for, wait_mark(e));
  }
}

// The i-th 8 bytes of source j, of which n elements T are the source's. False: the kernel is to end.
template <class T>
__device__ bool fetch_word(const KernelArgs& a, Pass& p, uint32_t j, uint64_t i, uint32_t n, uint64_t& word) {
  constexpr uint32_t kElements = kLineData / sizeof(T);
  if (const uint32_t flag = p.flag[j]; flag != 0) {
    const auto* const line = static_cast<const Pair*>(p.at[j]) + i;
    return wait_until(
        a, p, true, [&] { return load_line(line, flag, word); },
        [&]() -> const KernelEnd& { return a.ends[a.places[p.place + j].at]; });
  }
  const auto* const from = static_cast<const T*>(p.at[j]) + i * kElements;
  if (n == kElements && p.apart % kLineData == 0) {
    word = *reinterpret_cast<const uint64_t*>(from);
  } else {
    word = 0;
#pragma unroll
    for (uint32_t k = 0; k < kElements; ++k)
      if (k < n) {
        T e = from[k];
        uint64_t bits = 0;
        memcpy(&bits, &e, sizeof e);
        word |= bits << (8 * sizeof(T) * k % 64);
      }
  }
  return true;
}

// The same to place d, a destination.
template <class T>
__device__ void store_word(const Pass& p, uint32_t d, uint64_t i, uint32_t n, uint64_t word) {
  constexpr uint32_t kElements = kLineData / sizeof(T);
  if (const uint32_t flag = p.flag[d]; flag != 0)
    return store_line(static_cast<Pair*>(p.at[d]) + i, word, flag);
  auto* const to = static_cast<T*>(p.at[d]) + i * kElements;
  if (n == kElements && p.apart % kLineData == 0) {
    *reinterpret_cast<uint64_t*>(to) = word;
  } else {
#pragma unroll
    for (uint32_t k = 0; k < kElements; ++k)
      if (k < n) {
        const uint64_t bits = word >> (8 * sizeof(T) * k % 64);
        T e;
        memcpy(&e, &bits, sizeof e);
        to[k] = e;
      }
  }
}

}  // namespace muster::cuda
