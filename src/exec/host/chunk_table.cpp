#include "exec/host/chunk_table.h"

#include <algorithm>

#include "base/error.h"

namespace muster {

uint64_t ChunkTable::length(const Program& p, uint32_t c) const {
  const auto n = static_cast<uint32_t>(p.nranks), me = static_cast<uint32_t>(p.rank);
  switch (p.coll) {
    case Coll::all_gather: return output.at(c).count;
    case Coll::reduce_scatter: return input.at(c).count;
    case Coll::gather:
      if (p.rank == p.root) return output.at(c).count;
      if (c == me) return input.at(0).count;
      break;
    case Coll::scatter:
      if (p.rank == p.root) return input.at(c).count;
      if (c == me) return output.at(0).count;
      break;
    case Coll::all_to_all:
      if (c / n == me) return input.at(c % n).count;
      if (c % n == me) return output.at(c / n).count;
      break;
    default: break;
  }
  fail(Result::internal_error, "{} {}: rank {} doesn't know the length of chunk {}", p.algorithm, name_of(p.coll), p.rank, c);
}

uint64_t ChunkTable::longest() const {
  uint64_t longest = 0;
  for (const auto* chunks : {&input, &output})
    for (const Chunk& c : *chunks) longest = std::max(longest, c.count);
  return longest;
}

}  // namespace muster
