// Where the elements of one call lie: how the chunks and channels of its program become lengths and offsets.
// What every executor compiles a program with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/host/chunk_table.h"
#include "program/cut.h"
#include "program/program.h"

namespace muster {

class ChunkLayout {
 public:
  // `count`: elements as the caller gave them, of `element` bytes each. `table`: of a V-variant; null: none.
  // Both `program` and `table` must stay.
  ChunkLayout(const Program& program, uint64_t count, size_t element, const ChunkTable* table = nullptr);

  size_t element() const { return element_; }
  // Elements of a chunk of the data (modulo their number), and how channels cut it into parts.
  uint64_t length(uint32_t chunk) const;
  Cut parts(uint32_t chunk, const Channel& c) const { return {length(chunk), c.parts, element_}; }
  // The longest of all chunks' parts for this channel, also of chunks that only other ranks handle: ranks
  // pass tokens once per tile, so all of them must count the same tiles.
  uint64_t longest_part(const Channel& c) const;
  // Bytes from the buffer's start to piece `piece` of a local or window reference; 0 for a slot and for
  // messages.
  uint64_t offset(const Ref& r, uint32_t piece) const;
  uint64_t scratch_bytes() const { return scratch_chunk_ * program_.buffer_chunks[kScratch]; }

 private:
  const Program& program_;
  const ChunkTable* table_;
  size_t element_;
  uint64_t chunks_;  // that the caller's count is cut into
  Cut cut_;
  uint64_t scratch_chunk_;  // bytes
};

}  // namespace muster
