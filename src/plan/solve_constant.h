// Constants of the cost model by measurements: the value by which a price is the time that was measured.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "plan/constants.h"

namespace muster {

inline constexpr double kLeastConstant = 1e-4, kMostConstant = 1e4;  // within which values are looked for

// `price`: of the measured call, in us, by other constants; it must rise with the constant or fall with it,
// all the way. The value in [kLeastConstant, most] that makes it `us`; the nearer end where none does.
double solve_constant(const Constants& known, std::string_view name, double us, double most,
                      const std::function<double(const Constants&)>& price);

// Puts a measured value in, in the unit that the constant has. `how`: what was measured, for people.
void set_measured(Constants& constants, std::string_view name, double value, const std::string& how);

}  // namespace muster
