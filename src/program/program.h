// The step language: what one rank does in one collective.
//
// A Program is a value. A channel's steps run in order; channels are independent of each other. Each loop is run
// once per tile: the data of every chunk is cut into tiles, and pass t of the loop handles tile t of each chunk that
// the loop names. So a program's size doesn't grow with the data.
//
// Waiting is never written: a step runs when all its source slots are full and all its destination slots are free.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/collective.h"

namespace muster {

// Buffers of a collective, by index. In a send_recv program buffer i is the user memory of message i.
enum : uint16_t { kInput = 0, kOutput = 1, kScratch = 2 };

struct Ref {
  enum class Kind : uint8_t {
    local,   // chunk `chunk` of this rank's buffer `buffer`
    slot,    // the next message on the connection with `peer` on lane `lane` (source: from peer; destination: to peer)
    window,  // chunk `chunk` of rank `peer`'s buffer `buffer`, loaded or stored directly
  };
  Kind kind = Kind::local;
  bool raw = false;      // local input of a reducing collective: pre_mul_sum's factor is applied when it is read
  uint16_t buffer = 0;   // local, window
  uint16_t lane = 0;     // slot
  int32_t peer = -1;     // slot, window
  uint32_t chunk = 0;    // local, window: the first chunk; piece j is chunk (chunk + j) % chunks of the buffer
  friend bool operator==(const Ref&, const Ref&) = default;
};

// Take the sources, combine them element-wise in the order written, put the result in every destination.
struct Step {
  std::vector<Ref> sources;
  std::vector<Ref> destinations;
  // Which chunks' lengths the step has: pieces consecutive chunks of the data from `extent` on (modulo Program::chunks).
  // A slot message holds the pieces one after the other. pieces == 0: no data; slots carry a token.
  uint32_t extent = 0;
  uint32_t pieces = 1;
  bool finish = false;  // the result is complete: apply what comes after the sum (avg divides by the rank count)
  friend bool operator==(const Step&, const Step&) = default;
};

struct Loop {
  std::vector<Step> steps;
  int32_t message = -1;  // send_recv: lengths are those of message `message` (index in call order); else -1
  friend bool operator==(const Loop&, const Loop&) = default;
};

struct Channel {
  // This channel handles part `part` of `parts` of every chunk that its loops name.
  uint16_t part = 0;
  uint16_t parts = 1;
  std::vector<Loop> loops;
  friend bool operator==(const Channel&, const Channel&) = default;
};

struct Program {
  Coll coll = Coll::all_reduce;
  int nranks = 1;
  int rank = 0;
  int root = 0;
  // Chunks of the collective's data, each of a length of its own: parts of the caller's elements where
  // splits_count(coll); else one per rank; in all_to_all sender * nranks + receiver. See data_chunk.
  uint32_t chunks = 1;
  // Number of chunks of input, output and scratch (a scratch chunk is as long as the longest chunk).
  uint32_t buffer_chunks[3] = {1, 1, 0};
  std::vector<Channel> channels;
  std::string algorithm;  // e.g. "ring"
  friend bool operator==(const Program&, const Program&) = default;
};

inline Ref local(uint16_t buffer, uint32_t chunk) { return {Ref::Kind::local, false, buffer, 0, -1, chunk}; }
inline Ref slot(int32_t peer, uint16_t lane = 0) { return {Ref::Kind::slot, false, 0, lane, peer, 0}; }
inline Ref window(int32_t peer, uint16_t buffer, uint32_t chunk) { return {Ref::Kind::window, false, buffer, 0, peer, chunk}; }
inline Ref input(uint32_t chunk) { return local(kInput, chunk); }
// This rank's own contribution to a reduction.
inline Ref contribution(uint32_t chunk) {
  Ref r = local(kInput, chunk);
  r.raw = true;
  return r;
}
inline Ref output(uint32_t chunk) { return local(kOutput, chunk); }
inline Ref scratch(uint32_t chunk) { return local(kScratch, chunk); }

// --- composition (compose.cpp) -------------------------------------------------------------------------------

// `second`'s steps after `first`'s, channel by channel and in the same loop. Both must have the same number of
// channels and loops; buffers and chunk counts of the result are `first`'s unless larger in `second`.
Program append(Program first, const Program& second);
// Every local or window reference to buffer `from` becomes one to buffer `to`, chunk index + `chunk_offset`.
Program rename_buffer(Program p, uint16_t from, uint16_t to, uint32_t chunk_offset);
// Drops copies of a place onto itself; merges a step's result with later copies of that result to elsewhere where
// that keeps every connection's order (the seam of reduce-scatter ; all-gather); drops results in scratch that nobody
// reads. The program stays right in place, and with 2 slots or more.
Program fuse(Program p);
// One program of several with one channel each, of the same rank and with the same chunks. Each does its part of every
// chunk, on lanes of its own: channel c of C uses lane l * C + c for its program's lane l.
Program join(std::vector<Program> channels);
// `channels` copies of a one-channel program, joined.
Program replicate(const Program& p, int channels);

// --- reading (print.cpp, dot.cpp) -------------------------------------------------------------------------------------

std::string to_string(const Ref& r);
std::string to_string(const Step& s);
std::string to_string(const Program& p);                       // for a person
std::string to_dot(const std::vector<Program>& all_ranks);     // a picture, by Graphviz

}  // namespace muster
