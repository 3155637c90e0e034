// How prices are counted: bytes, microseconds, and rates in GB/s.
#pragma once

namespace muster {

inline constexpr double kBytesPerMicrosecond = 1e3;  // of one GB/s

}  // namespace muster
