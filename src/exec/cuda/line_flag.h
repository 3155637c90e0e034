// What says of a line (lines.cuh), and of a message's header, that it is there: for kernels, and for the host
// where it hands them messages.
#pragma once

#include <cstdint>

namespace muster::cuda {

// Of a connection's message `count`, never 0: that is memory that no message has been in.
#ifdef __CUDACC__
__host__ __device__
#endif
    constexpr uint32_t
    flag_of(uint64_t count) {
  return 1 + static_cast<uint32_t>(count % 0xffffffffu);
}

}  // namespace muster::cuda
