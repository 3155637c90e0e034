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

// ring.cpp: each rank talks to its two neighbours only.
Program ring_reduce_scatter(const Shape&);
Program ring_all_gather(const Shape&);
Program ring_all_reduce(const Shape&);
Program chain_broadcast(const Shape&);
Program chain_reduce(const Shape&);

// halving_doubling.cpp: partners at distances that are powers of two.
Program doubling_all_reduce(const Shape&);
Program halving_doubling_all_reduce(const Shape&);

// bruck.cpp: logarithmic for any number of ranks.
Program bruck_all_gather(const Shape&);
Program bruck_reduce_scatter(const Shape&);
Program bruck_all_reduce(const Shape&);

// binomial.cpp: the tree in which a rank's parent lacks its lowest bit.
Program binomial_broadcast(const Shape&);
Program binomial_reduce(const Shape&);
Program binomial_gather(const Shape&);
Program binomial_scatter(const Shape&);

// slices.cpp: the root's data in one slice per rank, so that all ranks share the work.
Program sliced_broadcast(const Shape&);
Program sliced_reduce(const Shape&);

// tree.cpp: two binary trees, each for half of the data.
Program double_tree_all_reduce(const Shape&);
Program double_tree_broadcast(const Shape&);
Program double_tree_reduce(const Shape&);

// hierarchical.cpp: programs inside hosts and between them, put together.
Program hierarchical_all_reduce(const Shape&);
Program hierarchical_reduce_scatter(const Shape&);
Program hierarchical_all_gather(const Shape&);
Program hierarchical_broadcast(const Shape&);
Program hierarchical_reduce(const Shape&);
Program hierarchical_all_to_all(const Shape&);
Program tree_all_reduce(const Shape&);
Program tree_broadcast(const Shape&);
Program tree_reduce(const Shape&);

// hierarchical_window.cpp: the same where ranks of a host load and store each other's buffers.
Program hierarchical_window_all_reduce(const Shape&);

// window.cpp: ranks load and store each other's buffers.
Program window_all_reduce(const Shape&);
Program window_reduce_scatter(const Shape&);
Program window_all_gather(const Shape&);
Program window_broadcast(const Shape&);
Program window_reduce(const Shape&);
Program window_all_to_all(const Shape&);
Program window_gather(const Shape&);
Program window_scatter(const Shape&);

// all_reduce = reduce_scatter ; all_gather. Both are programs of the same rank and of one channel.
Program all_reduce_of(Program reduce_scatter, Program all_gather);

inline Builder start(const char* algorithm, Coll coll, const Shape& s, uint32_t chunks = 1) {
  return Builder(algorithm, coll, s.nranks, s.rank, s.root, chunks);
}

// Rank r modulo n, for any r; and the chunk with its number.
inline int wrap(int r, int n) { return ((r % n) + n) % n; }
inline uint32_t chunk_of(int r, const Shape& s) { return static_cast<uint32_t>(wrap(r, s.nranks)); }
inline uint32_t chunk_of_me(const Shape& s) { return static_cast<uint32_t>(s.rank); }

// What rank `from` has for rank `to` in all_to_all.
inline uint32_t chunk_between(int from, int to, const Shape& s) {
  return static_cast<uint32_t>(from) * static_cast<uint32_t>(s.nranks) + static_cast<uint32_t>(to);
}

// The i-th of the other ranks (from 1 on) in the order in which this one turns to them: the next rank first,
// so that not everybody turns to rank 0 at once, and in each channel another one first, so that channels keep
// all links of a full mesh busy. No mesh has more than kMostDirect; in larger jobs channels are alike.
inline int peer_distance(const Shape& s, int i) {
  return s.nranks > kMostDirect ? i : 1 + (i - 1 + s.channel) % (s.nranks - 1);
}
inline int peer_ahead(const Shape& s, int i) { return wrap(s.rank + peer_distance(s, i), s.nranks); }
// The same where the others' turns come to this one.
inline int peer_behind(const Shape& s, int i) { return wrap(s.rank - peer_distance(s, i), s.nranks); }

// Slots to (or from) all other ranks, in the order of peer_ahead.
inline Refs slots_of_others(const Shape& s) {
  Refs refs;
  for (int i = 1; i < s.nranks; ++i) refs.push_back(slot(peer_ahead(s, i)));
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
