// What one *_perf program measures: everything in which the collectives differ. The rest is shared.
#pragma once

#include <cstddef>
#include <vector>

#include "muster/muster.h"
#include "perf/data.h"
#include "perf/format.h"

namespace muster::perf {

// Buffers of one call, in elements. In place, both are parts of one buffer.
struct Layout {
  size_t count = 0;  // what is passed to the call, and printed
  size_t send = 0, recv = 0;
  size_t in_place_send = 0, in_place_recv = 0;  // where they begin in the shared buffer
};

struct Call {
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  DataType type = DataType::float32;
  ReduceOp op = RedOp::sum;
  int root = 0;
  HostStream* stream = nullptr;
};

struct Collective {
  const char* name;  // "all_reduce"; the program is <name>_perf
  Traffic traffic;
  bool reduces, rooted;  // whether -o and -r mean something
  bool in_place;         // whether there is such a thing: otherwise only timed so, and #wrong is N/A
  // For a row of `bytes`; rank's own.
  Layout (*layout)(size_t bytes, size_t element, int rank, int nranks);
  // What rank's send buffer holds, and what its receive buffer must hold afterwards.
  std::vector<Content> (*sent)(const Layout& layout, int rank, int nranks, int root);
  std::vector<Content> (*expected)(const Layout& layout, int rank, int nranks, int root);
  void (*call)(Communicator& communicator, const Call& call);
};

// main of a *_perf program.
int run_perf(int argc, char** argv, const Collective& collective);

}  // namespace muster::perf
