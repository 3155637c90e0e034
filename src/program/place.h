// Where a reference points: a chunk of a buffer of a rank; and which places are the same memory in place.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace muster {

struct Place {
  int rank = 0;
  uint16_t buffer = 0;
  uint32_t chunk = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

// Piece `piece` of a local or window reference made by rank `p.rank`.
inline Place place_of(const Program& p, const Ref& r, uint32_t piece) {
  const int rank = r.kind == Ref::Kind::window ? r.peer : p.rank;
  const uint32_t chunks = r.buffer <= kScratch && p.coll != Coll::send_recv ? p.buffer_chunks[r.buffer] : 1;
  return {rank, r.buffer, chunks ? (r.chunk + piece) % chunks : r.chunk + piece};
}

// The chunk of the collective's data that is in this place of an input or output, and as long.
inline uint32_t data_chunk(const Program& p, const Place& at) {
  const auto n = static_cast<uint32_t>(p.nranks), owner = static_cast<uint32_t>(at.rank);
  switch (p.coll) {
    case Coll::all_gather:
    case Coll::gather:
      return at.buffer == kOutput ? at.chunk : owner;
    case Coll::reduce_scatter:
    case Coll::scatter:
      return at.buffer == kInput ? at.chunk : owner;
    case Coll::all_to_all:
      return at.buffer == kInput ? owner * n + at.chunk : at.chunk * n + owner;
    default:
      return at.chunk;
  }
}

// Do `pieces_a` chunks from a on and `pieces_b` chunks from b on have one in common, counted modulo `chunks`?
inline bool ranges_overlap(uint32_t chunks, uint32_t a, uint32_t pieces_a, uint32_t b, uint32_t pieces_b) {
  if (chunks == 0) return a == b;
  const uint32_t from_a_to_b = (b % chunks + chunks - a % chunks) % chunks;
  const uint32_t from_b_to_a = (chunks - from_a_to_b) % chunks;
  return from_a_to_b < pieces_a || from_b_to_a < pieces_b;
}

// When a collective is called in place, input and output share memory. Returns one name for both names of a
// place.
inline Place in_place(Coll coll, int root, Place at) {
  const auto chunk_of_rank = static_cast<uint32_t>(at.rank);
  switch (coll) {
    case Coll::all_reduce:
    case Coll::broadcast:
    case Coll::all_to_all:
      if (at.buffer == kInput) at.buffer = kOutput;
      break;
    case Coll::reduce:
      if (at.buffer == kInput && at.rank == root) at.buffer = kOutput;
      break;
    case Coll::reduce_scatter:
      if (at.buffer == kOutput) at = {at.rank, kInput, chunk_of_rank};
      break;
    case Coll::all_gather:
      if (at.buffer == kInput) at = {at.rank, kOutput, chunk_of_rank};
      break;
    case Coll::gather:
      if (at.buffer == kInput && at.rank == root) at = {at.rank, kOutput, chunk_of_rank};
      break;
    case Coll::scatter:
      if (at.buffer == kOutput && at.rank == root) at = {at.rank, kInput, chunk_of_rank};
      break;
    default:  // send_recv; uneven ones have no programs of their own
      break;
  }
  return at;
}

}  // namespace muster
