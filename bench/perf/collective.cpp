#include "perf/collective.h"

namespace muster::perf {

size_t share(size_t bytes, size_t element, int nranks) {
  const size_t together = 16 / element;
  return bytes / element / static_cast<size_t>(nranks) / together * together;
}

Contents of_each_rank(int nranks, size_t first, size_t count) {
  Contents contents;
  for (int r = 0; r < nranks; ++r) contents.push_back({.source = r, .first = first, .count = count});
  return contents;
}

}  // namespace muster::perf
