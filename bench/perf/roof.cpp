#include "perf/roof.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace muster::perf {
namespace {

double rate_of(CopyLoop& loop, size_t piece, double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  double copied = 0, passed = 0;
  do {
    loop.step(piece);
    copied += static_cast<double>(piece);
    passed = std::chrono::duration<double>(Clock::now() - begin).count();
  } while (passed < seconds);
  return 2 * copied / passed;
}

// What memcpy does only with more at once than a cache holds, if at all. A line that is written through the caches is read first.
void* copy_past_caches(void* to, const void* from, size_t bytes) {
#ifdef __SSE2__
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  const size_t head = std::min(bytes, (16 - reinterpret_cast<uintptr_t>(out) % 16) % 16);
  std::memcpy(out, in, head);
  size_t i = head;
  for (; i + 16 <= bytes; i += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i)));
  std::memcpy(out + i, in + i, bytes - i);
  _mm_sfence();
  return to;
#else
  return std::memcpy(to, from, bytes);
#endif
}

size_t touched(const Contents& contents) {
  size_t count = 0;
  for (const Content& c : contents)
    if (c.source != Content::kUntouched) count += c.count;
  return count;
}

}  // namespace

MemoryTraffic least_traffic(const Collective& collective, size_t bytes, size_t element, int nranks,
                            int root) {
  MemoryTraffic sum;
  for (int r = 0; r < nranks; ++r) {
    const Layout l = collective.layout(bytes, element, r, nranks);
    const Place place{.rank = r, .nranks = nranks, .root = root, .in_place = false};
    sum.read += static_cast<double>(touched(collective.sent(l, place)) * element);
    sum.written += static_cast<double>(touched(collective.expected(l, place)) * element);
  }
  return sum;
}

void CopyLoop::step(size_t piece) {
  while (piece > 0) {
    const size_t n = std::min(piece, bytes - at);
    (past_caches ? copy_past_caches : std::memcpy)(to + at, from + at, n);
    piece -= n;
    at = at + n == bytes ? 0 : at + n;
  }
}

double copy_rate(std::span<CopyLoop> loops, size_t piece, double seconds) {
  std::vector<double> rates(loops.size());
  std::vector<std::thread> others;
  for (size_t i = 1; i < loops.size(); ++i)
    others.emplace_back([&, i] { rates[i] = rate_of(loops[i], piece, seconds); });
  rates[0] = rate_of(loops[0], piece, seconds);
  for (std::thread& t : others) t.join();
  double sum = 0;
  for (const double r : rates) sum += r;
  return sum;
}

}  // namespace muster::perf
