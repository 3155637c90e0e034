#include "nccl/simulate.h"

#include <algorithm>

#include "plan/estimate.h"

namespace muster::nccl {
namespace {

double estimate(const Communicator::Impl& comm, const Call& call) {
  if (!call.uneven) return estimate_us(*choose(call.shape, comm.inputs).algorithm, call.shape, comm.inputs);
  const UnevenChoice choice = choose_uneven(call.shape, call.uneven->elements(), comm.inputs);
  return estimate_us(*choice.slots.algorithm, choice.average, comm.inputs);
}

}  // namespace

double estimate_microseconds(std::span<const Batch> streams) {
  double longest = 0;
  for (const Batch& b : streams) {
    double sum = 0;
    for (const Batch::Part& p : b.parts) {
      for (const Call& c : p.collectives) sum += estimate(*p.comm, c);
      for (const Call& c : p.messages) sum += estimate_message_us(c.shape.count * size_of(c.shape.type), p.comm->inputs);
      for (const OneSided& c : p.one_sided) sum += estimate_message_us(c.bytes, p.comm->inputs);
    }
    longest = std::max(longest, sum);  // streams run side by side
  }
  return longest;
}

}  // namespace muster::nccl
