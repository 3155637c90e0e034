#include "exec/chunk_layout.h"

#include <algorithm>

#include "base/math.h"

namespace muster {

ChunkLayout::ChunkLayout(const Program& program, uint64_t count, size_t element, const ChunkTable* table)
    : program_(program),
      table_(table),
      element_(element),
      chunks_(splits_count(program.coll) ? program.chunks : 1),
      cut_(count, chunks_, element),
      scratch_chunk_(align_up((table ? table->longest() : cut_.longest()) * element, kCacheLine)) {}

uint64_t ChunkLayout::length(uint32_t chunk) const {
  return table_ ? table_->length(program_, chunk % program_.chunks) : cut_.length(chunk % chunks_);
}

uint64_t ChunkLayout::longest_part(const Channel& c) const {
  if (table_) return Cut(table_->longest(), c.parts, element_).length(0);
  uint64_t longest = 0;
  for (uint32_t chunk = 0; chunk < chunks_; ++chunk)
    longest = std::max(longest, parts(chunk, c).length(c.part));
  return longest;
}

uint64_t ChunkLayout::offset(const Ref& r, uint32_t piece) const {
  if (r.kind == Ref::Kind::slot || program_.coll == Coll::send_recv) return 0;
  const uint32_t chunk = (r.chunk + piece) % std::max<uint32_t>(1, program_.buffer_chunks[r.buffer]);
  if (r.buffer == kScratch) return chunk * scratch_chunk_;
  if (table_) return (r.buffer == kInput ? table_->input : table_->output).at(chunk).begin * element_;
  if (splits_count(program_.coll)) return cut_.begin(chunk) * element_;
  return chunk * cut_.length(0) * element_;
}

}  // namespace muster
