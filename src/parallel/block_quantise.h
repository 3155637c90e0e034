// Elements as int8 with a scale per block: q = round(x / s), s = max|x| / 127 of the block. |x - q s| <= s /
// 2 = max|x| / 254, up to float32's rounding. A block with something infinite or NaN in it becomes NaN.
#pragma once

#include <cstddef>

#include "base/math.h"
#include "muster/types.h"

namespace muster {

// Bytes of `elements` quantised: the int8, rounded up to whole floats (zeros), then the scales.
inline size_t begin_of_scales(size_t elements) { return align_up(elements, sizeof(float)); }
size_t quantised_bytes(size_t elements, size_t block);
// Of float16, bfloat16 or float32. `to`: quantised_bytes, aligned to 4.
void quantise(const void* from, DataType type, size_t elements, size_t block, void* to);
void dequantise(const void* from, DataType type, size_t elements, size_t block, void* to);

}  // namespace muster
