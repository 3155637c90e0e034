// Where a number came from. Every guess is marked as one.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster::topology {

enum class Source : uint8_t {
  measured,  // by a benchmark on this machine
  read,      // from the system, a driver or a file
  table,     // known of this kind of part (rates.h names where from)
  assumed,   // nothing is known: what is usual
};
std::string_view name_of(Source s);  // "measured", ...

// Gigabytes (10^9) per second in one direction.
struct Rate {
  double gb_per_s = 0;
  Source source = Source::assumed;
};

}  // namespace muster::topology
