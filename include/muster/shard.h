// How n things are shared out where no padding is wanted: contiguous shares in order, of which the first n % parts have one
// more. Any rank can compute every rank's; shares may be empty.
#pragma once

#include <cstddef>
#include <vector>

namespace muster {

struct Shard {
  size_t begin = 0, count = 0;
  constexpr size_t end() const { return begin + count; }
  constexpr bool has(size_t i) const { return i >= begin && i < end(); }
  friend constexpr bool operator==(const Shard&, const Shard&) = default;
};

// parts: 1 or more; 0 <= part < parts.
constexpr Shard shard_of(size_t n, int parts, int part) {
  const auto p = static_cast<size_t>(parts), i = static_cast<size_t>(part);
  const size_t each = n / p, more = n % p;
  return {each * i + (i < more ? i : more), each + (i < more)};
}

// The counts of all parts times `times`, as V-variants take them.
inline std::vector<size_t> shard_counts(size_t n, int parts, size_t times = 1) {
  std::vector<size_t> counts;
  for (int part = 0; part < parts; ++part) counts.push_back(shard_of(n, parts, part).count * times);
  return counts;
}

}  // namespace muster
