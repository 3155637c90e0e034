// The algorithms by family: each function returns one rank's program, of one channel and one loop. See
// algorithms.cpp for what they are called, and docs/programs.md for their steps and bytes.
#pragma once

#include "algorithms/algorithms.h"
#include "program/builder.h"

namespace muster {

// direct.cpp: everybody talks to everybody; whoever owns a result combines all its sources in one step.
Program one_shot_all_reduce(const Shape&);
Program direct_all_reduce(const Shape&);
Program direct_reduce_scatter(const Shape&);
Program direct_all_gather(const Shape&);
Program direct_broadcast(const Shape&);
Program direct_reduce(const Shape&);
Program direct_gather(const Shape&);
Program direct_scatter(const Shape&);
Program pairwise_all_to_all(const Shape&);

// all_reduce = reduce_scatter ; all_gather. Both are programs of the same rank and of one channel.
Program all_reduce_of(Program reduce_scatter, Program all_gather);

// Rank numbers modulo n.
inline int wrap(int r, int n) { return ((r % n) + n) % n; }

// Slots to (or from) all other ranks: rank + 1 first, so that not everybody turns to rank 0 at once.
inline Refs slots_of_others(const Shape& s) {
  Refs refs;
  for (int i = 1; i < s.nranks; ++i) refs.push_back(slot(wrap(s.rank + i, s.nranks)));
  return refs;
}
// One reference per rank, by rank: `mine` for this one, a slot for each of the others.
inline Refs by_rank(const Shape& s, const Ref& mine) {
  Refs refs;
  for (int r = 0; r < s.nranks; ++r) refs.push_back(r == s.rank ? mine : slot(r));
  return refs;
}
inline Refs with(Refs refs, const Ref& r) {
  refs.insert(refs.begin(), r);
  return refs;
}

}  // namespace muster
