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

Layout whole_buffers(size_t bytes, size_t element, int, int) {
  const size_t count = bytes / element;
  return {.count = count, .send = count, .recv = count};
}

Layout gathered_shares(size_t bytes, size_t element, int rank, int nranks) {
  const size_t count = share(bytes, element, nranks);
  return {.count = count,
          .send = count,
          .recv = count * static_cast<size_t>(nranks),
          .in_place_send = count * static_cast<size_t>(rank)};
}

Layout scattered_shares(size_t bytes, size_t element, int rank, int nranks) {
  const size_t count = share(bytes, element, nranks);
  return {.count = count,
          .send = count * static_cast<size_t>(nranks),
          .recv = count,
          .in_place_recv = count * static_cast<size_t>(rank)};
}

Contents own_elements(const Layout& l, const Place& p) { return {{.source = p.rank, .count = l.send}}; }

}  // namespace muster::perf
