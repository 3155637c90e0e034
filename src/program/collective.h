// The collectives, and how each one's buffers are divided into chunks.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

enum class Coll : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  all_to_all,
  gather,
  scatter,
  send_recv,  // a group of point-to-point messages
  // With a count for each rank, or pair of ranks. They run the programs of the collectives above: even().
  all_gather_v,
  reduce_scatter_v,
  all_to_all_v,
  gather_v,
  scatter_v,
};
inline constexpr int kColls = 14;

const char* name_of(Coll c);  // "all_reduce", ...
// The collective that a person means, of those with algorithms of their own (all_reduce to scatter): case and underscores
// don't count ("AllReduce"). Throws invalid_argument, naming them.
Coll collective_named(std::string_view name);

constexpr bool is_uneven(Coll c) { return c >= Coll::all_gather_v; }
// The collective of equal counts, whose programs a V-variant runs; others as they are.
constexpr Coll even(Coll c) {
  switch (c) {
    case Coll::all_gather_v: return Coll::all_gather;
    case Coll::reduce_scatter_v: return Coll::reduce_scatter;
    case Coll::all_to_all_v: return Coll::all_to_all;
    case Coll::gather_v: return Coll::gather;
    case Coll::scatter_v: return Coll::scatter;
    default: return c;
  }
}
// Uneven counts of these are known to the two ends of each message only, those of the others to all ranks.
constexpr bool is_pairwise(Coll c) {
  const Coll e = even(c);
  return e == Coll::all_to_all || e == Coll::gather || e == Coll::scatter;
}

constexpr bool reduces(Coll c) {
  return c == Coll::all_reduce || c == Coll::reduce_scatter || c == Coll::reduce || c == Coll::reduce_scatter_v;
}
constexpr bool rooted(Coll c) {
  return c == Coll::broadcast || c == Coll::reduce || c == Coll::gather || c == Coll::scatter || c == Coll::gather_v || c == Coll::scatter_v;
}

// all_reduce, broadcast and reduce split the caller's `count` elements into Program::chunks parts. In the others a
// chunk is what one rank contributes or gets, and one or both buffers hold one chunk per rank.
constexpr bool splits_count(Coll c) { return c == Coll::all_reduce || c == Coll::broadcast || c == Coll::reduce; }

}  // namespace muster
