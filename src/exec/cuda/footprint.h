// Which bytes of a rank's own buffers a program touches.
#pragma once

#include <cstdint>

#include "exec/cuda/compile.h"

namespace muster::cuda {

// From the buffer's start; empty: begin == end.
struct ByteRange {
  uint64_t begin = 0, end = 0;
};

// By buffer: input, output, scratch. All that is read or written lies in these ranges; not every byte of them is.
struct Footprint {
  ByteRange reads[3], writes[3];
};
Footprint footprint_of(const KernelImage& image);

}  // namespace muster::cuda
