#include <algorithm>
#include <cmath>

#include "plan/bandwidth.h"
#include "plan/host_price.h"
#include "plan/prediction.h"

namespace muster {
namespace {

// What a call costs by one row of measured calls.
class RowPrice {
 public:
  RowPrice(const MeasuredRow& row, const CallShape& call, const PlanInputs& in, const Constants& k)
      : row_(row), call_(call), in_(in), k_(k), measured_call_(call), measured_in_(in) {
    measured_call_.type = DataType::float32;
    measured_call_.channels = 0;
    measured_in_.nranks = row.ranks;
    measured_in_.cores = row.cores;
    measured_in_.channels = 0;
    const bool same_bytes = !reduces(call.coll) || size_of(call.type) >= size_of(DataType::float32);
    alike_ = same_bytes && row.ranks == in.nranks && row.cores == in.cores && channels_of(call, in) == 1;
  }

  // `model`: the model's price of the call.
  double us(double model) const {
    const double bytes = data_bytes(call_.coll, in_.nranks, call_.count, size_of(call_.type));
    const auto above = static_cast<size_t>(
        std::ranges::find_if(row_.points,
                             [&](const auto& p) { return static_cast<double>(p.bytes) > bytes; }) -
        row_.points.begin());
    if (above == 0) return model * time(0) / model_at(0, call_, in_);
    const size_t low = above - 1;
    double low_us = time(low);
    if (!alike_)
      for (size_t i = 0; i < low; ++i) low_us = std::max(low_us, time(i));
    const double low_model = model_at(low, call_, in_);
    if (above == row_.points.size()) return beyond(model, low, low_model, low_us / low_model);
    const double high_us = std::max(low_us, time(above)), high_model = model_at(above, call_, in_);
    if (high_model <= low_model) return low_us;
    return low_us + (high_us - low_us) * std::clamp((model - low_model) / (high_model - low_model), 0.0, 1.0);
  }

 private:
  // Beyond the last time the ratio to it fades up to where the constants of bytes outside caches were
  // measured on this machine: there the model was made right, and what a call in caches was off says nothing.
  // It fades by the logarithm of the model's price, and so slowly that prices rise by half as much as the
  // model's at least.
  double beyond(double model, size_t last, double last_model, double ratio) const {
    CallShape call = call_;
    call.count = count_of(call, row_.points[last].bytes, in_.nranks);
    const double outside = kLeavesCache * static_cast<double>(in_.cache_bytes);
    if (!has_memory_rates() || host_footprint(call, in_.nranks) >= outside) return model * ratio;
    call.count = 1;
    call.count = static_cast<uint64_t>(outside / host_footprint(call, in_.nranks));
    const double end =
        std::max(host_model_price(*row_.algorithm, call, in_, k_).us, last_model * ratio * ratio);
    if (end <= last_model) return model * ratio;
    const double share = std::clamp(std::log(end / model) / std::log(end / last_model), 0.0, 1.0);
    return model * std::pow(ratio, share);
  }

  bool has_memory_rates() const {
    const char* const name = row_.algorithm->windows ? "host.window.memory" : "host.slot.memory";
    return k_.get(name).source != Constants::built_in().get(name).source;
  }

  double model_at(size_t point, CallShape call, const PlanInputs& in) const {
    call.count = count_of(call, row_.points[point].bytes, in.nranks);
    return host_model_price(*row_.algorithm, call, in, k_).us;
  }

  // What a call such as this one would have taken instead of the one that was measured.
  double time(size_t point) const {
    const double measured = row_.points[point].us;
    if (alike_) return measured;
    return measured * model_at(point, call_, in_) / model_at(point, measured_call_, measured_in_);
  }

  const MeasuredRow& row_;
  const CallShape& call_;
  const PlanInputs& in_;
  const Constants& k_;
  CallShape measured_call_;
  PlanInputs measured_in_;
  bool alike_ = false;
};

}  // namespace

HostPrice host_price(const Algorithm& a, const CallShape& call, const PlanInputs& in, const Constants& k) {
  const HostPrice model = host_model_price(a, call, in, k);
  const MeasuredRow* const row = call.count > 0 ? k.calls().nearest(a, in.nranks, in.cores) : nullptr;
  if (!row) return model;
  const double ratio = RowPrice(*row, call, in, k).us(model.us) / model.us;
  return {ratio * model.us, ratio * model.messages_us, ratio * model.bytes_us, ratio * model.turns_us};
}

}  // namespace muster
