// The checks of gpu_check. Each prints what it found, and ends the program with status 1 where something is
// wrong.
#pragma once

#include "ranks.h"

namespace gpu_check {

// Every element of collectives: all types and operations of all-reduce, the others with 32-bit integers.
void check_collectives(const Setup& setup);
// Sends and receives: a ring, all pairs, several to one peer, to oneself.
void check_messages(const Setup& setup);
// Captured calls, replayed with other data.
void check_graphs(const Setup& setup);
// A rank whose peers never call: it is aborted, and its kernel ends.
void check_abort(const Setup& setup);

// Bytes per second beside a plain copy within the GPU. With one rank: fails below 90 % from 64 MiB up.
void measure_bandwidth(const Setup& setup);
// Microseconds of an 8-byte all-reduce, launched one by one and from a graph.
void measure_latency(const Setup& setup);

}  // namespace gpu_check
