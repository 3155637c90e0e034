#include "exec/cuda/plain_copies.h"

namespace muster::cuda {
namespace {

bool continues(const PlainCopy& a, const PlainCopy& b) {
  return a.from == b.from && a.to == b.to && a.from_offset + a.bytes == b.from_offset && a.to_offset + a.bytes == b.to_offset;
}

void append(std::vector<PlainCopy>& copies, const PlainCopy& c) {
  if (c.bytes == 0) return;
  if (!copies.empty() && continues(copies.back(), c))
    copies.back().bytes += c.bytes;
  else
    copies.push_back(c);
}

}  // namespace

std::optional<std::vector<PlainCopy>> plain_copies_of(const KernelImage& image) {
  const uint64_t element = size_of(image.call.type);
  for (const KernelPlace& p : image.places)
    if (p.kind != KernelPlace::local || p.buffer == kScratch) return std::nullopt;
  for (const KernelLoop& l : image.loops)  // steps of one loop alternate, tile by tile
    if (l.last - l.first > 1) return std::nullopt;
  std::vector<PlainCopy> copies;
  for (const KernelStep& s : image.steps) {
    if (s.combines || s.sources != 1) return std::nullopt;
    for (uint32_t d = 0; d < s.destinations; ++d)
      for (uint32_t piece = 0; piece < s.pieces; ++piece) {
        const uint64_t* const offsets = &image.offsets[s.offset + piece * (1 + s.destinations)];
        append(copies, {image.places[s.place].buffer, image.places[s.place + 1 + d].buffer, offsets[0], offsets[1 + d],
                        image.lengths[s.length + piece] * element});
      }
  }
  return copies;
}

}  // namespace muster::cuda
