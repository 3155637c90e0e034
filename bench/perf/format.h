// Numbers as the tables show them, and the bandwidths that the tables are about. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace muster::perf {

// `value` in `width` columns: two decimals while they fit, then one, then none, then an exponent.
std::string fixed_width(double value, int width);

// "1.50 MB": three significant digits, binary units.
std::string human_bytes(double bytes);

// The next size of a sweep, never beyond what size_t holds (then: SIZE_MAX).
size_t next_size(size_t bytes, size_t step_bytes, size_t step_factor);

struct Bandwidth {
  double algorithm = 0;  // GB/s: bytes of the collective per second
  double bus = 0;        // GB/s: what each link of an ideal machine carries, comparable between rank counts
};
// What bandwidths mean, for a collective of `bytes` (the size in the table: of what a rank sends or of what
// it receives, whichever is more) among n ranks.
enum class Traffic {
  all_reduce,  // algorithm: bytes; bus: 2 (n-1) / n of it
  share,  // all_gather, reduce_scatter, alltoall, alltoallv, gather, scatter. algorithm: bytes; bus: (n-1) /
          // n of it
  whole,  // broadcast, reduce, sendrecv. both: bytes
  hypercube,  // both: what a rank receives, (n-1) / n of bytes
};
Bandwidth bandwidth(Traffic traffic, size_t bytes, double seconds, int nranks);

struct Statistics {
  double min = 0, max = 0, mean = 0, p50 = 0, p95 = 0, p99 = 0, deviation = 0;
  double variation_percent() const { return mean > 0 ? deviation / mean * 100 : 0; }
};
Statistics statistics(std::vector<double> samples);  // of none: zeros

}  // namespace muster::perf
