#include "perf/roof.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

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
    std::memcpy(to + at, from + at, n);
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
