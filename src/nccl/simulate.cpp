#include "nccl/simulate.h"

#include <algorithm>

#include "device/host/arena.h"
#include "plan/estimate.h"

namespace muster::nccl {
namespace {

// Whether the call's buffers on this rank are memory that the others can load and store.
bool in_reach(const Communicator::Impl& comm, const Call& call) {
  if (call.shape.coll == Coll::all_to_all && call.send == call.recv) return false;
  const auto is_window = [&](const void* p) {
    return !p || comm.inputs.same_process || Arena::of_process().offset_of(p, 1);
  };
  return is_window(call.send) && is_window(call.recv);
}

double estimate(const Communicator::Impl& comm, const Call& call) {
  const auto of = [&](const CallShape& shape, const Choice& slots, const Choice& windows) {
    return estimate_us(windows.algorithm && in_reach(comm, call) ? *windows.algorithm : *slots.algorithm,
                       shape, comm.inputs);
  };
  if (!call.uneven) {
    const auto [shape, slots, windows] = comm.choose_ways(call.shape);
    return of(shape, slots, windows);
  }
  const UnevenChoice choice = choose_uneven(call.shape, call.uneven->elements(), comm.inputs);
  return of(choice.average, choice.slots, choice.windows);
}

}  // namespace

double estimate_microseconds(std::span<const Batch> streams) {
  double longest = 0;
  for (const Batch& b : streams) {
    double sum = 0;
    for (const Batch::Part& p : b.parts) {
      for (const Call& c : p.collectives) sum += estimate(*p.comm, c);
      for (const Call& c : p.messages)
        sum += estimate_message_us(c.shape.count * size_of(c.shape.type), p.comm->inputs);
      for (const OneSided& c : p.one_sided) sum += estimate_message_us(c.bytes, p.comm->inputs);
    }
    longest = std::max(longest, sum);  // streams run side by side
  }
  return longest;
}

}  // namespace muster::nccl
