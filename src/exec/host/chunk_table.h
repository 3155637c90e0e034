// Where the chunks of a V-variant's buffers are and how long, as its caller says; in elements.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace muster {

struct ChunkTable {
  struct Chunk {
    uint64_t begin = 0;  // from the buffer's start
    uint64_t count = 0;
    friend bool operator==(const Chunk&, const Chunk&) = default;
  };
  // Chunks of this rank's input and output, as many as Program::buffer_chunks says; none where it hasn't got the buffer.
  std::vector<Chunk> input, output;
  friend bool operator==(const ChunkTable&, const ChunkTable&) = default;

  // Elements of a chunk of the data. Throws internal_error for one whose length this rank can't know.
  uint64_t length(const Program& p, uint32_t data_chunk) const;
  // Of all that this rank knows.
  uint64_t longest() const;
};

}  // namespace muster
