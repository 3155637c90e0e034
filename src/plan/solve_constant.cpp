#include "plan/solve_constant.h"

#include <fmt/format.h>

#include <cmath>

namespace muster {

double solve_constant(const Constants& known, std::string_view name, double us, double most,
                      const std::function<double(const Constants&)>& price) {
  constexpr int kHalvings = 40;  // of the logarithmic range
  double low = std::log(kLeastConstant), high = std::log(most);
  Constants trial = known;
  const auto price_by = [&](double logarithm) {
    set_measured(trial, name, std::exp(logarithm), "trial");
    return price(trial);
  };
  const bool is_rate = price_by(low) > price_by(high);
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    const bool too_dear = price_by(middle) > us;
    (too_dear == is_rate ? low : high) = middle;
  }
  return std::exp((low + high) / 2);
}

void set_measured(Constants& constants, std::string_view name, double value, const std::string& how) {
  const std::string line =
      fmt::format("{} {:.6g} {} measured {}", name, value, constants.get(name).unit, how);
  constants.override_with(Constants::read(line, "tuning"), "tuning");
}

}  // namespace muster
