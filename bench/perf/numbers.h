// Floating-point formats, spelled out: from a double to the bits of any element type.
#pragma once

#include <cstdint>

#include "muster/types.h"

namespace muster::perf {

struct FloatFormat {
  int exponent_bits = 0;  // 0: not a float
  int mantissa_bits = 0;  // stored ones
};
FloatFormat format_of(DataType type);
bool is_float(DataType type);
bool is_signed(DataType type);

// Rounded to nearest, ties to even; float8 saturates at its largest finite value.
uint64_t encode(double value, DataType type);

// How many representable values apart two floats are; huge if either is not a number.
uint64_t ulps_between(uint64_t a, uint64_t b, DataType type);

}  // namespace muster::perf
