#include "program/part.h"

#include "program/place.h"

namespace muster {

void add_part(Builder& whole, const Program& part, const Meaning& m) {
  if (m.ranks.size() != static_cast<size_t>(part.nranks) || part.channels.size() != 1 || part.channels[0].loops.size() != 1)
    fail(Result::internal_error, "{} {} of {} ranks and {} channels can't be a part for {} ranks", part.algorithm, name_of(part.coll),
         part.nranks, part.channels.size(), m.ranks.size());
  const auto among_all = [&](const Ref& r) {
    if (r.kind == Ref::Kind::slot) return slot(m.ranks[static_cast<size_t>(r.peer)], r.lane);
    if (r.kind == Ref::Kind::window || r.buffer > kOutput)
      fail(Result::internal_error, "{} {} uses {}, which a part can't", part.algorithm, name_of(part.coll), to_string(r));
    const uint32_t c = m.chunk(data_chunk(part, place_of(part, r, 0)));
    return r.buffer == kInput ? m.input(c) : m.output(c);
  };
  const auto all_among_all = [&](const Refs& refs) {
    Refs moved;
    for (const Ref& r : refs) moved.push_back(among_all(r));
    return moved;
  };
  for (const Step& s : part.channels[0].loops[0].steps) {
    if (s.pieces > 1) fail(Result::internal_error, "{} {} has a message of {} chunks, which a part can't", part.algorithm, name_of(part.coll), s.pieces);
    if (s.pieces == 0) {
      whole.tokens(all_among_all(s.sources), all_among_all(s.destinations));
      continue;
    }
    const uint32_t extent = m.chunk(s.extent % part.chunks);
    if (extent == kNoChunk) continue;
    if (s.finish && m.completes)
      whole.finish(extent, all_among_all(s.sources), all_among_all(s.destinations));
    else
      whole.step(extent, all_among_all(s.sources), all_among_all(s.destinations));
  }
}

}  // namespace muster
