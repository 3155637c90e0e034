// How many ranks a communicator may have: more are taken for a mistake.
#pragma once

namespace muster {

inline constexpr int kMostRanks = 1 << 20;

}  // namespace muster
