#include "nccl/simulate.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace muster::nccl {
namespace {

// Measured on a 2-core EPYC of 2.6 GHz (docs/architecture.md): a line handed from one core to another; a call
// of one rank, without any wire; bytes per direction through shared slots.
constexpr double kHandOver = 0.05, kCall = 0.047;  // us
constexpr double kBytesPerMicrosecond = 12e3;

// Messages that follow one another at least, and bytes that pass one rank's connections in one direction.
struct Work {
  double rounds;
  double bytes;
};

Work work_of(const CallShape& s, double n) {
  const double chunk = static_cast<double>(s.count) * static_cast<double>(size_of(s.type));
  const double log = std::ceil(std::log2(n));
  switch (s.coll) {
    case Coll::all_reduce:
      return {2, 2 * chunk * (n - 1) / n};
    case Coll::broadcast:
    case Coll::reduce:
      return {log, chunk};
    case Coll::all_gather:
    case Coll::reduce_scatter:
    case Coll::all_to_all:
      return {1, chunk * (n - 1)};
    case Coll::gather:
    case Coll::scatter:
      return {1, chunk * (n - 1)};
    default:  // send_recv
      return {1, chunk};
  }
}

double estimate(const Communicator::Impl& comm, const Call& call) {
  if (comm.size == 1 || call.shape.count == 0) return kCall;
  CallShape shape = call.shape;
  if (call.uneven) {
    shape.coll = even(shape.coll);
    shape.count = call.uneven->elements() / static_cast<uint64_t>(comm.size);
  }
  const Work w = work_of(shape, comm.size);
  // Ranks that share a core take turns.
  const double turns = std::max(1.0, static_cast<double>(comm.size) / std::max(1, comm.inputs.cores));
  return kCall + turns * (w.rounds * kHandOver + w.bytes / kBytesPerMicrosecond);
}

}  // namespace

double estimate_microseconds(std::span<const Batch> streams) {
  double longest = 0;
  for (const Batch& b : streams) {
    double sum = 0;
    for (const Batch::Part& p : b.parts) {
      for (const Call& c : p.collectives) sum += estimate(*p.comm, c);
      for (const Call& c : p.messages) sum += estimate(*p.comm, c);
      for (const OneSided& c : p.one_sided) sum += kCall + kHandOver + static_cast<double>(c.bytes) / kBytesPerMicrosecond;
    }
    longest = std::max(longest, sum);  // streams run side by side
  }
  return longest;
}

}  // namespace muster::nccl
