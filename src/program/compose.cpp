// Programs made of programs.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "program/place.h"
#include "program/program.h"

namespace muster {

namespace {

template <class F>
void for_each_ref(Program& p, F f) {
  for (Channel& c : p.channels)
    for (Loop& l : c.loops)
      for (Step& s : l.steps) {
        for (Ref& r : s.sources) f(r);
        for (Ref& r : s.destinations) f(r);
      }
}

bool uses_slots(const Step& s) {
  const auto is_slot = [](const Ref& r) { return r.kind == Ref::Kind::slot; };
  return std::any_of(s.sources.begin(), s.sources.end(), is_slot) ||
         std::any_of(s.destinations.begin(), s.destinations.end(), is_slot);
}

bool is_copy_of_local(const Step& s) {
  return s.pieces > 0 && !s.finish && s.sources.size() == 1 && s.sources[0].kind == Ref::Kind::local &&
         !s.sources[0].raw;
}

// The last step that writes `copy`'s source, if `copy`'s destinations can be written there and then instead.
class Fusion {
 public:
  explicit Fusion(const Program& p) : p_(p) {}

  Step* writer_for(std::vector<Step>& before, const Step& copy) const {
    const Ref& x = copy.sources[0];
    for (size_t i = before.size(); i-- > 0;) {
      Step& s = before[i];
      if (writes(s, x, copy.pieces)) return can_take(s, copy) ? &s : nullptr;
      // What stays between must not notice that the copy is made earlier; and since waiting happens in step
      // order, a copy that moves past a step with slots could block that step's message for ever.
      if (uses_slots(s)) return nullptr;
      for (const Ref& d : copy.destinations)
        if (writes(s, d, copy.pieces) || reads(s, d, copy.pieces)) return nullptr;
    }
    return nullptr;
  }

 private:
  // Both names of memory that is shared in place are taken for the same.
  bool overlap(const Ref& a, uint32_t pieces_a, const Ref& b, uint32_t pieces_b) const {
    if (a.kind == Ref::Kind::slot) return false;
    const Place x = in_place(p_.coll, p_.root, place_of(p_, a, 0)),
                y = in_place(p_.coll, p_.root, place_of(p_, b, 0));
    if (x.rank != y.rank || x.buffer != y.buffer) return false;
    const uint32_t chunks = p_.coll == Coll::send_recv ? 1 : p_.buffer_chunks[x.buffer];
    return ranges_overlap(chunks, x.chunk, pieces_a, y.chunk, pieces_b);
  }
  bool any_overlap(const std::vector<Ref>& refs, uint32_t pieces, const Ref& x, uint32_t pieces_x) const {
    if (x.kind == Ref::Kind::slot) return false;  // connections are no memory
    return std::any_of(refs.begin(), refs.end(),
                       [&](const Ref& r) { return overlap(r, pieces, x, pieces_x); });
  }
  bool writes(const Step& s, const Ref& x, uint32_t pieces) const {
    return any_overlap(s.destinations, s.pieces, x, pieces);
  }
  bool reads(const Step& s, const Ref& x, uint32_t pieces) const {
    return any_overlap(s.sources, s.pieces, x, pieces);
  }

  bool can_take(const Step& writer, const Step& copy) const {
    const auto& dests = writer.destinations;
    if (writer.extent % p_.chunks != copy.extent % p_.chunks || writer.pieces != copy.pieces) return false;
    if (std::find(dests.begin(), dests.end(), copy.sources[0]) == dests.end()) return false;
    for (const Ref& d : copy.destinations) {
      if (std::find(dests.begin(), dests.end(), d) != dests.end()) return false;  // one message at a time
      if (writes(writer, d, copy.pieces) || reads(writer, d, copy.pieces)) return false;
    }
    return true;
  }

  const Program& p_;
};

// Results in scratch that no later step reads needn't be kept, if they go somewhere else too.
void drop_unread_scratch(Program& p) {
  if (p.coll == Coll::send_recv) return;
  const auto chunks_of = [&](const Ref& r, uint32_t pieces) {
    std::vector<uint32_t> chunks;
    for (uint32_t i = 0; i < pieces; ++i) chunks.push_back(place_of(p, r, i).chunk);
    return chunks;
  };
  if (p.channels.size() != 1 || p.channels[0].loops.size() != 1) return;
  auto& steps = p.channels[0].loops[0].steps;
  std::vector<bool> read(p.buffer_chunks[kScratch]);  // by a step after the one at hand
  for (size_t i = steps.size(); i-- > 0;) {
    Step& s = steps[i];
    const auto unread = [&](const Ref& r) {
      if (r.kind != Ref::Kind::local || r.buffer != kScratch) return false;
      const auto chunks = chunks_of(r, s.pieces);
      return std::none_of(chunks.begin(), chunks.end(), [&](uint32_t c) { return read[c]; });
    };
    const auto kept = std::stable_partition(s.destinations.begin(), s.destinations.end(),
                                            [&](const Ref& r) { return !unread(r); });
    if (kept != s.destinations.begin()) s.destinations.erase(kept, s.destinations.end());
    for (const Ref& r : s.sources)
      if (r.kind == Ref::Kind::local && r.buffer == kScratch)
        for (const uint32_t c : chunks_of(r, s.pieces)) read[c] = true;
  }
}

}  // namespace

Program append(Program first, const Program& second) {
  if (first.channels.size() != second.channels.size() || first.nranks != second.nranks ||
      first.rank != second.rank) {
    fail(Result::internal_error,
         "append: {} of rank {}/{} with {} channels and {} of rank {}/{} with {} channels don't fit",
         first.algorithm, first.rank, first.nranks, first.channels.size(), second.algorithm, second.rank,
         second.nranks, second.channels.size());
  }
  first.chunks = std::max(first.chunks, second.chunks);
  for (int b = 0; b < 3; ++b)
    first.buffer_chunks[b] = std::max(first.buffer_chunks[b], second.buffer_chunks[b]);
  for (size_t c = 0; c < first.channels.size(); ++c) {
    Channel& a = first.channels[c];
    const Channel& b = second.channels[c];
    if (a.part != b.part || a.parts != b.parts || a.loops.size() != b.loops.size()) {
      fail(Result::internal_error,
           "append: channel {} is part {}/{} with {} loops in {}, part {}/{} with {} loops in {}", c, a.part,
           a.parts, a.loops.size(), first.algorithm, b.part, b.parts, b.loops.size(), second.algorithm);
    }
    for (size_t l = 0; l < a.loops.size(); ++l) {
      const auto& more = b.loops[l].steps;
      a.loops[l].steps.insert(a.loops[l].steps.end(), more.begin(), more.end());
    }
  }
  return first;
}

Program rename_buffer(Program p, uint16_t from, uint16_t to, uint32_t chunk_offset) {
  for_each_ref(p, [&](Ref& r) {
    if (r.kind == Ref::Kind::slot || r.buffer != from) return;
    r.buffer = to;
    r.chunk += chunk_offset;
  });
  if (from <= kScratch && to <= kScratch)
    p.buffer_chunks[to] = std::max(p.buffer_chunks[to], p.buffer_chunks[from] + chunk_offset);
  return p;
}

Program fuse(Program p) {
  const Fusion fusion(p);
  for (Channel& channel : p.channels) {
    for (Loop& loop : channel.loops) {
      std::vector<Step> fused;
      for (Step& s : loop.steps) {
        if (is_copy_of_local(s)) {
          std::erase(s.destinations, s.sources[0]);
          if (s.destinations.empty()) continue;
          if (Step* writer = fusion.writer_for(fused, s)) {
            writer->destinations.insert(writer->destinations.end(), s.destinations.begin(),
                                        s.destinations.end());
            continue;
          }
        }
        fused.push_back(std::move(s));
      }
      loop.steps = std::move(fused);
    }
  }
  drop_unread_scratch(p);
  return p;
}

Program join(std::vector<Program> channels) {
  constexpr size_t kMost = 1 << 15;
  if (channels.empty() || channels.size() > kMost)
    fail(Result::internal_error, "join: 1 to {} channels are possible, {} were given", kMost, channels.size());
  Program all = channels[0];
  all.channels.clear();
  for (size_t c = 0; c < channels.size(); ++c) {
    Program& p = channels[c];
    if (p.channels.size() != 1 || p.channels[0].parts != 1 || p.rank != all.rank || p.chunks != all.chunks)
      fail(Result::internal_error,
           "join: {} of rank {} with {} channels and {} chunks of data does not fit {} of rank {} with one and {}", p.algorithm, p.rank,
           p.channels.size(), p.chunks, all.algorithm, all.rank, all.chunks);
    for_each_ref(p, [&](Ref& r) {
      if (r.kind == Ref::Kind::slot) r.lane = static_cast<uint16_t>(r.lane * channels.size() + c);
    });
    for (int b = 0; b < 3; ++b) all.buffer_chunks[b] = std::max(all.buffer_chunks[b], p.buffer_chunks[b]);
    p.channels[0].part = static_cast<uint16_t>(c);
    p.channels[0].parts = static_cast<uint16_t>(channels.size());
    all.channels.push_back(std::move(p.channels[0]));
  }
  return all;
}

Program replicate(const Program& p, int channels) {
  return join(std::vector<Program>(static_cast<size_t>(std::max(channels, 0)), p));
}

}  // namespace muster
