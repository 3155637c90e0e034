#include "plan/estimate.h"

#include <algorithm>

#include "plan/work.h"

namespace muster {
namespace {

constexpr double kHandOver = 0.05, kCall = 0.047;  // us
constexpr double kBytesPerMicrosecond = 12e3;

double price(double rounds, double bytes, const PlanInputs& in) {
  const double turns = std::max(1.0, static_cast<double>(in.nranks) / std::max(1, in.cores));
  return kCall + turns * (rounds * kHandOver + bytes / kBytesPerMicrosecond);
}

}  // namespace

double estimate_us(const Algorithm& algorithm, const CallShape& call, const PlanInputs& in) {
  if (in.nranks == 1 || call.count == 0) return kCall;
  const double chunk = static_cast<double>(call.count) * static_cast<double>(size_of(call.type));
  const double data = splits_count(call.coll) ? chunk : chunk * in.nranks;
  const auto work = work_of(algorithm, {in.nranks, 1, in.nranks}, data);
  // A window: one exchange of where buffers are, one wait at the end; each rank's part is read from the others' memory, once.
  if (!work) return price(2, data * (in.nranks - 1) / in.nranks, in);
  return price(work->near_rounds, work->near_bytes, in);
}

double estimate_message_us(uint64_t bytes, const PlanInputs& in) { return price(1, static_cast<double>(bytes), in); }

}  // namespace muster
