// The collectives, and how each one's buffers are divided into chunks.
#pragma once

#include <cstdint>

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
};
inline constexpr int kColls = 9;

const char* name_of(Coll c);  // "all_reduce", ...

constexpr bool reduces(Coll c) { return c == Coll::all_reduce || c == Coll::reduce_scatter || c == Coll::reduce; }
constexpr bool rooted(Coll c) { return c == Coll::broadcast || c == Coll::reduce || c == Coll::gather || c == Coll::scatter; }

// all_reduce, broadcast and reduce split the caller's `count` elements into Program::chunks parts. In the others a
// chunk is one rank's `count` elements, and one or both buffers hold one chunk per rank.
constexpr bool splits_count(Coll c) { return c == Coll::all_reduce || c == Coll::broadcast || c == Coll::reduce; }

}  // namespace muster
