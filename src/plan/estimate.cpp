#include "plan/estimate.h"

#include "plan/host_price.h"
#include "plan/hosts_price.h"

namespace muster {
namespace {

const Constants& constants_of(const PlanInputs& in) { return in.tuned ? *in.tuned : Constants::built_in(); }

}  // namespace

double estimate_us(const Algorithm& algorithm, const CallShape& call, const PlanInputs& in) {
  const Constants& k = constants_of(in);
  if (call.count == 0) return k("host.call");
  if (in.placement)
    if (const auto price = hosts_price(algorithm, call, in, k)) return price->us;
  return host_price(algorithm, call, in, k).us;
}

double estimate_message_us(uint64_t bytes, const PlanInputs& in) {
  return host_message_price(bytes, in, constants_of(in)).us;
}

}  // namespace muster
