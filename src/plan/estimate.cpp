#include "plan/estimate.h"

#include "plan/host_price.h"

namespace muster {
namespace {

const Constants& constants_of(const PlanInputs& in) { return in.tuned ? *in.tuned : Constants::built_in(); }

}  // namespace

double estimate_us(const Algorithm& algorithm, const CallShape& call, const PlanInputs& in) {
  return call.count == 0 ? constants_of(in)("host.call")
                         : host_price(algorithm, call, in, constants_of(in)).us;
}

double estimate_message_us(uint64_t bytes, const PlanInputs& in) {
  return host_message_price(bytes, in, constants_of(in)).us;
}

}  // namespace muster
