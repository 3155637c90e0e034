// How every library is measured: one method, so that the numbers can be compared.
//
// Sizes. "bytes" is the larger of a rank's two buffers: all_reduce and broadcast count elements,
// reduce_scatter's send, all_gather's recv, all_to_all's send and recv. A size that isn't a whole number of
// floats per rank is left out. Buffers are page-aligned, out of place, except broadcast, which is in place
// everywhere (MPI knows no other).
//
// Caches. Each call takes the next of K disjoint send/recv pairs, where K is the smallest number with
// K * bytes >= 2 * last-level cache, but at most 4: up to half the last-level cache 4 pairs take turns (a
// message that small is in cache in a real program too, since it was just computed), and what exceeds the
// cache is never found there. With `rewrite` a rank also stores to each cache line of its send buffer before
// each call, inside the measured time, as a program would that computes new values; without it, a library
// that reads a peer's buffer directly may find lines it read K calls ago.
//
// Time. The number of calls is doubled until they take a tenth of `time_ms`; then come `batches` batches of
// at least one call each, which together take about `time_ms`. A batch starts behind a barrier; its time per
// call is the average of its calls on the slowest rank. The median batch is reported. Calls follow each other
// without a barrier, so a broadcast's root may run ahead of the others as far as the library lets it.
//
// Correctness. After the timing, outputs are poisoned, each pair is used once more, and each element of each
// rank is compared with its exact value. A wrong size prints no time; the program then exits with 1.
//
// Output: rank 0 writes "library collective bytes seconds" to stdout, one line per size.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace peers {

enum class Collective { all_reduce, reduce_scatter, all_gather, broadcast, all_to_all };

inline constexpr int kRoot = 0;  // of broadcast

// One library on one rank. Every member but name, rank, size, allocate and release is collective.
class Library {
 public:
  virtual ~Library() = default;
  virtual const char* name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool supports(Collective) const { return true; }

  // Blocking. count: elements a rank contributes to or receives from one block: all of all_reduce and
  // broadcast (whose send == recv), recv of reduce_scatter, send of all_gather, what goes to each rank in
  // all_to_all. Sums are of float.
  virtual void run(Collective collective, const float* send, float* recv, size_t count) = 0;
  virtual void barrier() = 0;
  virtual double max(double value) = 0;  // over all ranks

  // Page-aligned; ordinary malloc memory unless overridden.
  virtual void* allocate(size_t bytes);
  virtual void release(void* memory);
};

struct Options {
  std::vector<std::string> collectives = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                          "all_to_all"};
  size_t begin = 8, end = size_t{256} << 20;  // bytes, inclusive
  size_t factor = 2;                          // from one size to the next
  double time_ms = 50;
  int batches = 5;
  double limit_s = 0;  // no new size is begun after so many seconds; 0 = no limit
  bool rewrite = false;
};

void add_options(CLI::App& app, Options& options);

// Measures and prints; returns the program's exit status, the same on every rank.
int measure(Library& library, const Options& options);

}  // namespace peers
