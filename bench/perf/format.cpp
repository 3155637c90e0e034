#include "perf/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace muster::perf {

std::string fixed_width(double value, int width) {
  const int digits = value < 1 ? 1 : static_cast<int>(std::floor(std::log10(value))) + 1;
  for (const int decimals : {2, 1, 0}) {
    const int needed = digits + (decimals ? decimals + 1 : 0);
    // Rounding may carry into one digit more.
    if (std::string text = fmt::format("{:{}.{}f}", value, width, decimals);
        needed <= width && text.size() <= static_cast<size_t>(width))
      return text;
  }
  return fmt::format("{:{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

std::string human_bytes(double bytes) {
  static constexpr const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  const int decimals = unit == 0 ? 0 : std::abs(bytes) < 10 ? 2 : std::abs(bytes) < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", bytes, decimals, units[unit]);
}

size_t next_size(size_t bytes, size_t step_bytes, size_t step_factor) {
  if (step_factor <= 1) return bytes > SIZE_MAX - step_bytes ? SIZE_MAX : bytes + step_bytes;
  if (bytes == 0) return 8;  // no factor leads away from zero
  return bytes > SIZE_MAX / step_factor ? SIZE_MAX : bytes * step_factor;
}

Bandwidth bandwidth(Traffic traffic, size_t bytes, double seconds, int nranks) {
  if (!(seconds > 0)) return {};
  const double base = static_cast<double>(bytes) / 1e9 / seconds;
  const double others = static_cast<double>(nranks - 1) / nranks;
  switch (traffic) {
    case Traffic::all_reduce:
      return {base, base * 2 * others};
    case Traffic::share:
      return {base, base * others};
    case Traffic::whole:
      return {base, base};
    case Traffic::hypercube:
      return {base * others, base * others};
  }
  return {};
}

Statistics statistics(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  // The smallest sample that so many percent of all don't exceed.
  const auto percentile = [&](size_t percent) {
    return samples[std::min(n - 1, std::max<size_t>(1, (n * percent + 99) / 100) - 1)];
  };
  Statistics s;
  s.min = samples.front();
  s.max = samples.back();
  s.p50 = percentile(50);
  s.p95 = percentile(95);
  s.p99 = percentile(99);
  for (const double x : samples) s.mean += x / static_cast<double>(n);
  double squares = 0;
  for (const double x : samples) squares += (x - s.mean) * (x - s.mean);
  s.deviation = std::sqrt(squares / static_cast<double>(n));
  return s;
}

}  // namespace muster::perf
