#include "exec/cuda/footprint.h"

#include <algorithm>

namespace muster::cuda {
namespace {

void include(ByteRange& range, uint64_t begin, uint64_t bytes) {
  if (bytes == 0) return;
  const bool is_first = range.begin == range.end;
  range.begin = is_first ? begin : std::min(range.begin, begin);
  range.end = std::max(range.end, begin + bytes);
}

}  // namespace

Footprint footprint_of(const KernelImage& image) {
  const uint64_t element = size_of(image.call.type);
  Footprint all;
  for (const KernelStep& s : image.steps) {
    const uint32_t places = s.sources + s.destinations;
    for (uint32_t piece = 0; piece < s.pieces; ++piece)
      for (uint32_t i = 0; i < places; ++i) {
        const KernelPlace& p = image.places[s.place + i];
        if (p.kind == KernelPlace::local)
          include((i < s.sources ? all.reads : all.writes)[p.buffer], image.offsets[s.offset + piece * places + i],
                  image.lengths[s.length + piece] * element);
      }
  }
  return all;
}

}  // namespace muster::cuda
