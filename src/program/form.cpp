// The part of the checker that looks at programs without running them.
#include <set>
#include <unordered_map>
#include <utility>

#include "program/builder.h"
#include "program/place.h"
#include "program/violation.h"

namespace muster {

std::string title_of(std::span<const Program> programs) {
  if (programs.empty()) return "no programs: ";
  return fmt::format("{} {}, {} ranks: ", programs[0].algorithm, name_of(programs[0].coll), programs.size());
}

std::string text_of(std::span<const Program> programs, const Position& at) {
  std::string s = fmt::format("rank {}", at.rank);
  if (at.channel >= 0) s += fmt::format(", channel {}", at.channel);
  if (at.loop >= 0) s += fmt::format(", loop {}", at.loop);
  if (at.step >= 0) {
    const auto& channel = programs[static_cast<size_t>(at.rank)].channels[static_cast<size_t>(at.channel)];
    s += fmt::format(
        ", step {} ({})", at.step,
        to_string(channel.loops[static_cast<size_t>(at.loop)].steps[static_cast<size_t>(at.step)]));
  }
  return s;
}

bool has_buffer(const Program& p, int rank, uint16_t buffer) {
  if (p.coll == Coll::send_recv) return true;
  if (buffer == kInput && (p.coll == Coll::broadcast || p.coll == Coll::scatter)) return rank == p.root;
  if (buffer == kOutput && (p.coll == Coll::reduce || p.coll == Coll::gather)) return rank == p.root;
  return buffer <= kScratch;
}

namespace {

class Form {
 public:
  explicit Form(std::span<const Program> programs)
      : programs_(programs), n_(static_cast<int>(programs.size())) {}

  void check() {
    if (programs_.empty()) throw Violation{"a collective of no ranks: expected one program per rank"};
    for (int r = 0; r < n_; ++r) check_header(r);
    for (int r = 0; r < n_; ++r) check_program(r);
  }

 private:
  const Program& program(int rank) const { return programs_[static_cast<size_t>(rank)]; }

  void check_header(int r) {
    const Program &p = program(r), &first = program(0);
    const Position at{r};
    if (p.rank != r || p.nranks != n_)
      violation(programs_, at, "expected the program of rank {} of {}, found that of rank {} of {}", r, n_,
                p.rank, p.nranks);
    if (p.coll != first.coll)
      violation(programs_, at, "expected {} like rank 0, found {}", name_of(first.coll), name_of(p.coll));
    if (p.root != first.root || p.root < 0 || p.root >= n_)
      violation(programs_, at, "expected root {} in 0..{}, found root {}", first.root, n_ - 1, p.root);
    if (p.chunks != first.chunks || p.chunks == 0)
      violation(programs_, at, "expected {} chunks like rank 0, found {}", first.chunks, p.chunks);
    if (p.coll == Coll::send_recv) return;
    Program expected = p;
    set_chunks(expected, splits_count(p.coll) ? p.chunks : 1);
    if (p.chunks != expected.chunks)
      violation(programs_, at, "expected {} chunks of data in {}, found {}", expected.chunks, name_of(p.coll),
                p.chunks);
    for (const uint16_t b : {kInput, kOutput}) {
      if (p.buffer_chunks[b] == expected.buffer_chunks[b]) continue;
      violation(programs_, at, "expected {} chunks of {}, found {}", expected.buffer_chunks[b],
                b == kInput ? "input" : "output", p.buffer_chunks[b]);
    }
  }

  void check_program(int r) {
    const Program& p = program(r);
    for (size_t c = 0; c < p.channels.size(); ++c) {
      const Channel& channel = p.channels[c];
      Position at{r, static_cast<int>(c)};
      if (channel.parts == 0 || channel.part >= channel.parts)
        violation(programs_, at, "expected a part below the number of parts, found part {} of {}",
                  channel.part, channel.parts);
      for (at.loop = 0; at.loop < static_cast<int>(channel.loops.size()); ++at.loop) {
        const Loop& loop = channel.loops[static_cast<size_t>(at.loop)];
        if ((p.coll == Coll::send_recv) != (loop.message >= 0)) {
          at.step = -1;
          violation(programs_, at,
                    "expected a message index in loops of send_recv and in no others, found {}",
                    loop.message);
        }
        for (at.step = 0; at.step < static_cast<int>(loop.steps.size()); ++at.step)
          check_step(at, loop, loop.steps[static_cast<size_t>(at.step)]);
      }
    }
  }

  void check_step(const Position& at, const Loop& loop, const Step& s) {
    const Program& p = program(at.rank);
    for (const Ref& r : s.sources) check_ref(at, s, r, true);
    for (const Ref& r : s.destinations) check_ref(at, s, r, false);
    check_slots_once(at, s.sources);
    check_slots_once(at, s.destinations);
    if (s.finish && !reduces(p.coll))
      violation(programs_, at, "expected no result to complete in {}, found finish", name_of(p.coll));
    if (s.pieces == 0) {
      if (s.finish) violation(programs_, at, "expected only tokens in a step of no pieces, found finish");
      if (s.sources.empty() && s.destinations.empty())
        violation(programs_, at, "expected something to do, found an empty step");
      return;
    }
    if (s.sources.empty() || s.destinations.empty())
      violation(programs_, at, "expected sources and destinations, found none of one");
    if (s.sources.size() > 1 && !reduces(p.coll))
      violation(programs_, at, "expected one source, since {} doesn't reduce, found {}", name_of(p.coll),
                s.sources.size());
    if (p.coll == Coll::send_recv) check_message(at, loop, s);
    check_overlap(at, s);
  }

  void check_ref(const Position& at, const Step& s, const Ref& r, bool source) {
    const Program& p = program(at.rank);
    if (r.kind != Ref::Kind::local && (r.peer < 0 || r.peer >= n_ || r.peer == at.rank))
      violation(programs_, at, "expected a peer in 0..{} other than the rank itself, found {}", n_ - 1,
                r.peer);
    if (r.raw && !(source && reduces(p.coll) && r.kind == Ref::Kind::local && r.buffer == kInput))
      violation(programs_, at, "expected raw only on a reduction's own input, found it on {}", to_string(r));
    if (r.kind == Ref::Kind::slot) return check_connection(at, r, source);

    if (s.pieces == 0)
      violation(programs_, at, "expected only slots in a step of no pieces, found {}", to_string(r));
    if (p.coll == Coll::send_recv) {
      if (r.kind == Ref::Kind::window || r.chunk != 0 || s.pieces != 1)
        violation(programs_, at, "expected a message's own buffer in one piece, found {}", to_string(r));
      return;
    }
    const int owner = r.kind == Ref::Kind::window ? r.peer : at.rank;
    if (r.buffer > kScratch || (r.kind == Ref::Kind::window && r.buffer == kScratch) ||
        !has_buffer(p, owner, r.buffer))
      violation(programs_, at, "expected a buffer that rank {} has, found {}", owner, to_string(r));
    const uint32_t chunks = program(owner).buffer_chunks[r.buffer];
    if (r.chunk >= chunks || s.pieces > chunks)
      violation(programs_, at, "expected at most {} chunks of that buffer, found {} of {}", chunks, s.pieces,
                to_string(r));
    if (!source && r.buffer == kInput)
      violation(programs_, at, "expected the input to be left alone, found it written");
    if (source && r.kind == Ref::Kind::local && r.buffer == kInput && reduces(p.coll) && !r.raw)
      violation(programs_, at, "expected a rank's own contribution to be read raw, found {}", to_string(r));
    // Each chunk of data has its place and its length. In scratch it may be anywhere.
    for (uint32_t piece = 0; r.buffer != kScratch && piece < s.pieces; ++piece)
      if (data_chunk(p, place_of(p, r, piece)) != (s.extent + piece) % p.chunks)
        violation(programs_, at, "expected chunks as long as {}'s, found the length of chunk {}",
                  to_string(r), s.extent % p.chunks);
  }

  void check_connection(const Position& at, const Ref& r, bool source) {
    const uint64_t ends =
        static_cast<uint64_t>(at.rank) * static_cast<uint64_t>(n_) + static_cast<uint64_t>(r.peer);
    const auto [owner, first] =
        owners_.try_emplace((ends << 17) | (uint64_t{r.lane} << 1) | (source ? 1 : 0), at.channel);
    if (owner->second != at.channel) {
      violation(programs_, at,
                "expected one channel on a connection, found lane {} {} rank {} used by channel {} as well",
                r.lane, source ? "from" : "to", r.peer, owner->second);
    }
  }

  void check_message(const Position& at, const Loop& loop, const Step& s) {
    for (const auto* refs : {&s.sources, &s.destinations})
      for (const Ref& r : *refs)
        if (r.kind == Ref::Kind::local && r.buffer == loop.message) return;
    violation(programs_, at, "expected the memory of message {}, found other memory", loop.message);
  }

  // Within a step, a destination may be a source exactly, but not partly, and nothing is written twice.
  void check_overlap(const Position& at, const Step& s) {
    const Program& p = program(at.rank);
    for (size_t d = 0; d < s.destinations.size(); ++d) {
      const Ref& to = s.destinations[d];
      if (to.kind == Ref::Kind::slot) continue;
      for (size_t e = 0; e < d; ++e) {
        const Ref& other = s.destinations[e];
        if (other.kind == Ref::Kind::slot || other.buffer != to.buffer ||
            owner_of(p, other) != owner_of(p, to))
          continue;
        if (overlap(owner_of(p, to), to, other, s.pieces))
          violation(programs_, at, "expected each place to be written once, found {} twice", to_string(to));
      }
      for (const Ref& from : s.sources) {
        if (from.kind == Ref::Kind::slot || from.buffer != to.buffer || owner_of(p, from) != owner_of(p, to))
          continue;
        if (from.chunk != to.chunk && overlap(owner_of(p, to), to, from, s.pieces))
          violation(programs_, at,
                    "expected {} and {} to be the same place or not to overlap, found them overlapping",
                    to_string(from), to_string(to));
      }
    }
  }
  void check_slots_once(const Position& at, const std::vector<Ref>& refs) {
    std::set<std::pair<int, int>> seen;
    for (const Ref& r : refs)
      if (r.kind == Ref::Kind::slot && !seen.emplace(r.peer, r.lane).second)
        violation(programs_, at, "expected one message of a connection in a step, found {} twice",
                  to_string(r));
  }
  static int owner_of(const Program& p, const Ref& r) {
    return r.kind == Ref::Kind::window ? r.peer : p.rank;
  }
  // a and b are in the same buffer of `owner`.
  bool overlap(int owner, const Ref& a, const Ref& b, uint32_t pieces) const {
    const Program& p = program(owner);
    if (p.coll == Coll::send_recv) return a.chunk == b.chunk;
    return ranges_overlap(p.buffer_chunks[a.buffer], a.chunk, pieces, b.chunk, pieces);
  }

  std::span<const Program> programs_;
  int n_;
  std::unordered_map<uint64_t, int> owners_;  // rank, peer, lane and direction -> channel
};

}  // namespace

void check_form(std::span<const Program> programs) { Form(programs).check(); }

}  // namespace muster
