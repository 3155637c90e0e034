// Kernels of the bitwise and logical operations, which look at bits only.
#pragma once

#include <cstdint>

#include "device/host/kernels.h"

namespace muster {

// `target`: a bit of Highway's, one of those that the arithmetic kernels have. `op`: bit_and .. logical_xor. Throws
// invalid_argument where the operation isn't defined for the type.
ReduceFn bit_kernel(int64_t target, DataType type, RedOp op);

}  // namespace muster
