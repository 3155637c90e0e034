// Each rank receives from the one before and sends to the one after; every link carries the same load.
#include "algorithms/families.h"

namespace muster {

namespace {
Ref from_previous(const Shape& s) { return slot(wrap(s.rank - 1, s.nranks)); }
Ref to_next(const Shape& s) { return slot(wrap(s.rank + 1, s.nranks)); }
}  // namespace

// Partial sums travel once round the ring; each rank adds its own part as they pass. Chunk c starts at rank c
// + 1.
Program ring_reduce_scatter(const Shape& s) {
  Builder b = start("ring", Coll::reduce_scatter, s);
  const Ref previous = from_previous(s), next = to_next(s);
  const int n = s.nranks, me = s.rank;
  if (n == 1) {
    b.finish(0, {contribution(0)}, {output(0)});
    return b.done();
  }
  b.step(chunk_of(me - 1, s), {contribution(chunk_of(me - 1, s))}, {next});
  for (int i = 2; i < n; ++i) {
    const uint32_t c = chunk_of(me - i, s);
    b.step(c, {previous, contribution(c)}, {next});
  }
  b.finish(chunk_of_me(s), {previous, contribution(chunk_of_me(s))}, {output(0)});
  return b.done();
}

// Each rank's chunk travels round the ring; each rank keeps a copy as it passes.
Program ring_all_gather(const Shape& s) {
  Builder b = start("ring", Coll::all_gather, s);
  const Ref previous = from_previous(s), next = to_next(s);
  const int n = s.nranks, me = s.rank;
  b.step(chunk_of_me(s), {input(0)}, n == 1 ? Refs{output(0)} : Refs{output(chunk_of_me(s)), next});
  for (int i = 1; i < n; ++i) {
    const uint32_t c = chunk_of(me - i, s);
    b.step(c, {previous}, i == n - 1 ? Refs{output(c)} : Refs{output(c), next});
  }
  return b.done();
}

Program ring_all_reduce(const Shape& s) { return all_reduce_of(ring_reduce_scatter(s), ring_all_gather(s)); }

// root, root + 1, ... Each rank passes tiles on while the next ones arrive.
Program chain_broadcast(const Shape& s) {
  Builder b = start("chain", Coll::broadcast, s);
  Refs to = {output(0)};
  if (wrap(s.rank + 1, s.nranks) != s.root) to.push_back(to_next(s));
  b.step(0, {s.rank == s.root ? input(0) : from_previous(s)}, to);
  return b.done();
}

// root + 1, root + 2, ..., root. Each rank adds its own part to the sum that passes.
Program chain_reduce(const Shape& s) {
  Builder b = start("chain", Coll::reduce, s);
  Refs from = {contribution(0)};
  if (wrap(s.rank - 1, s.nranks) != s.root) from.insert(from.begin(), from_previous(s));
  if (s.rank == s.root) {
    b.finish(0, from, {output(0)});
  } else {
    b.step(0, from, {to_next(s)});
  }
  return b.done();
}

}  // namespace muster
