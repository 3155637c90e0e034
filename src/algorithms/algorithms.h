// Every algorithm: a function from a shape to one rank's program, and a table of them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "algorithms/placement.h"
#include "program/program.h"

namespace muster {

struct Shape {
  int nranks = 1;
  int rank = 0;
  int root = 0;
  const Placement* placement = nullptr;  // null: nothing is known
  int channel = 0;                       // which ring of the placement is followed, which peers come first
};

struct Algorithm {
  const char* name;               // e.g. "ring"; unique within a collective
  Coll coll;
  Program (*make)(const Shape&);  // one channel; use make_program() for more
  bool whole;                     // only for data that fits one tile and one channel (e.g. Bruck's aggregated messages)
  bool windows;                   // loads or stores peers' buffers: all ranks' buffers must be windows, no pre_mul_sum
  bool rank_order;                // reductions combine by rank, left to right, in one place
  const char* idea;               // one line for people
  bool in_place = true;           // right when input and output share memory, too
  bool names_all = false;         // a step may name all ranks, which must be kMostDirect at most
  bool by_host = false;           // only where the placement has no obstacle (placement.h)
  bool along_rings = false;       // each channel goes along a ring of the placement
};

std::span<const Algorithm> algorithms();
// nullptr if there is none.
const Algorithm* find_algorithm(Coll coll, std::string_view name);
// The program of `channels` channels. Each follows the placement's ring of its number, if there are rings, or begins with
// other peers.
Program make_program(const Algorithm& algorithm, Shape shape, int channels);

// Most ranks of which one step names all: the kernels' sources.
inline constexpr int kMostDirect = 64;

// An all-gather of which the ranks of each host hear each other's parts only.
Program host_all_gather(const Shape& shape);

// The grouped sends and receives of one rank, in call order.
struct Message {
  bool is_send = false;
  int peer = 0;
};
// One channel per peer and direction; a send to self is paired with the receive from self in order and copied.
Program send_recv(int nranks, int rank, std::span<const Message> messages);

}  // namespace muster
