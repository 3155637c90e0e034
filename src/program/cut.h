// How elements are cut into a program's chunks, and chunks into the parts of channels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/math.h"

namespace muster {

// How a number of elements is cut into parts that start on cache lines: part i is [begin(i), begin(i) +
// length(i)).
class Cut {
 public:
  Cut(uint64_t count, uint64_t parts, size_t element) : count_(count) {
    const uint64_t line = std::max<uint64_t>(1, kCacheLine / element);
    part_ = parts <= 1 ? count : std::max<uint64_t>(align_up(ceil_div(count, parts), line), 1);
  }
  uint64_t begin(uint64_t i) const { return std::min(i * part_, count_); }
  uint64_t length(uint64_t i) const { return std::min(part_, count_ - begin(i)); }
  uint64_t longest() const { return std::min(part_, count_); }

 private:
  uint64_t count_, part_;
};

}  // namespace muster
