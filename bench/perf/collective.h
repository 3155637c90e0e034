// What one *_perf program measures: everything in which the collectives differ. The rest is shared.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "muster/muster.h"
#include "perf/args.h"
#include "perf/data.h"
#include "perf/format.h"
#include "perf/gpus.h"

namespace muster::perf {

// Buffers of one call, in elements. In place, both are parts of one buffer.
struct Layout {
  size_t count = 0;           // what is passed to the call, and printed
  size_t send = 0, recv = 0;  // equal on all ranks: the larger one is the size that is printed
  size_t in_place_send = 0, in_place_recv = 0;  // where they begin in the shared buffer
  // To and from each rank, and where that begins in the sender's buffer, where ranks differ.
  std::vector<size_t> sends, recvs, origins;
};

struct Place {
  int rank = 0, nranks = 1, root = 0;
  bool in_place = false;
};

struct Call {
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  DataType type = DataType::float32;
  ReduceOp op = RedOp::sum;
  int root = 0;
  int round = 0;
  HostStream* stream = nullptr;                    // on host memory
  std::span<const size_t> sends = {}, recvs = {};  // Layout's
};

using Contents = std::vector<Content>;

struct Collective {
  const char* name;  // "alltoall"; the program is <name>_perf
  Traffic traffic;
  const char* planned_as = nullptr;      // Communicator::explain's name; none: nothing is to be planned
  bool reduces = false, rooted = false;  // whether -o and -r mean something
  bool in_place = true;  // whether there is such a thing: otherwise only timed so, and #wrong is N/A
  // For a row of `bytes`; rank's own.
  std::function<Layout(size_t bytes, size_t element, int rank, int nranks)> layout;
  // What rank's send buffer holds, and what its receive buffer must hold afterwards: in place, all of the
  // shared buffer. Each as long as Layout says.
  std::function<Contents(const Layout&layout, const Place&place)> sent, expected;
  // On host memory, and on GPUs: mostly one lambda for either.
  std::function<void(Communicator& rank, const Call& call)> call;
  std::function<void(GpuRank& rank, const Call& call)> gpu_call;
  // Calls that depend on each other, each in all ranks before the next: they can't share a group.
  std::function<int(int nranks)> rounds = [](int) { return 1; };
  // Called before any of the above. Refuses what can't be (throws muster::Error); returns why nothing is to
  // be measured with so many ranks, mostly "".
  std::function<std::string(const Args& args, int nranks)> prepare = [](const Args&, int) { return ""; };
  // More lines, ready to print, about a row of `bytes` that took so long; mostly "".
  std::function<std::string(size_t bytes, size_t element, int nranks, double seconds)> summary =
      [](size_t, size_t, int, double) { return ""; };
};

// A group of one rank's calls, by its own interface.
inline void open_group(Communicator&) { group_start(); }
inline void close_group(Communicator&) { group_end(); }
inline void open_group(GpuRank& rank) { rank.group_start(); }
inline void close_group(GpuRank& rank) { rank.group_end(); }

// Elements of `bytes` that are one rank's share: equal shares, each a multiple of 16 bytes.
size_t share(size_t bytes, size_t element, int nranks);

// The usual layouts: equal buffers; a share of each rank and a buffer of all of them, in place within it; the
// other way round.
Layout whole_buffers(size_t bytes, size_t element, int rank, int nranks);
Layout gathered_shares(size_t bytes, size_t element, int rank, int nranks);
Layout scattered_shares(size_t bytes, size_t element, int rank, int nranks);
// A send buffer of nothing but the rank's own elements.
Contents own_elements(const Layout& layout, const Place& place);

// `count` elements of each rank, beginning with the first-th, rank by rank.
Contents of_each_rank(int nranks, size_t first, size_t count);

// main of a *_perf program.
int run_perf(int argc, char** argv, const Collective& collective);

}  // namespace muster::perf
