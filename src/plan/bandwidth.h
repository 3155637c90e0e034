// What sizes and bandwidths of collectives mean, as nccl-tests counts them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/collective.h"

namespace muster {

// Bytes of a collective's data: all ranks' parts where there is a part per rank. `count`: elements, as the
// caller gives it; of a send_recv those of a message. V-variants count like those of equal counts.
double data_bytes(Coll coll, int nranks, uint64_t count, size_t element_bytes);

// busbw / algbw, what makes bandwidths of different rank counts comparable with that of links.
double bus_factor(Coll coll, int nranks);

}  // namespace muster
