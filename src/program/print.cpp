// Programs as text.
#include "program/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>


namespace muster {

std::string ref_text(const Ref& r, bool message_buffers) {
  if (r.kind == Ref::Kind::slot)
    return r.lane ? fmt::format("slot({}, lane {})", r.peer, r.lane) : fmt::format("slot({})", r.peer);
  static constexpr const char* names[] = {"input", "output", "scratch"};
  std::string place;
  if (r.raw) {
    place = fmt::format("contribution({})", r.chunk);
  } else if (!message_buffers && r.buffer <= kScratch) {
    place = fmt::format("{}({})", names[r.buffer], r.chunk);
  } else {
    place = fmt::format("message({})", r.buffer);
  }
  return r.kind == Ref::Kind::window ? fmt::format("rank {}'s {}", r.peer, place) : place;
}

std::string refs_text(const std::vector<Ref>& refs, const char* separator, bool message_buffers) {
  std::vector<std::string> texts;
  for (const Ref& r : refs) texts.push_back(ref_text(r, message_buffers));
  return fmt::format("{}", fmt::join(texts, separator));
}

std::string step_text(const Step& s, bool message_buffers) {
  if (s.pieces == 0) {
    if (s.sources.empty())
      return fmt::format("token -> {}", refs_text(s.destinations, ", ", message_buffers));
    if (s.destinations.empty())
      return fmt::format("token <- {}", refs_text(s.sources, ", ", message_buffers));
    return fmt::format("token {} -> {}", refs_text(s.sources, ", ", message_buffers),
                       refs_text(s.destinations, ", ", message_buffers));
  }
  return fmt::format("{} -> {}{}{}", refs_text(s.sources, " + ", message_buffers),
                     refs_text(s.destinations, ", ", message_buffers),
                     s.pieces > 1 ? fmt::format(", {} chunks", s.pieces) : "", s.finish ? ", complete" : "");
}

std::string to_string(const Ref& r) { return ref_text(r, false); }
std::string to_string(const Step& s) { return step_text(s, false); }

std::string to_string(const Program& p) {
  const bool messages = p.coll == Coll::send_recv;
  std::string text = fmt::format("{} {}, rank {} of {}", p.algorithm, name_of(p.coll), p.rank, p.nranks);
  if (rooted(p.coll)) text += fmt::format(", root {}", p.root);
  if (splits_count(p.coll)) text += fmt::format(", data in {} chunks", p.chunks);
  if (!messages)
    text += fmt::format(" (input {}, output {}, scratch {})", p.buffer_chunks[0], p.buffer_chunks[1],
                        p.buffer_chunks[2]);
  text += '\n';
  for (size_t c = 0; c < p.channels.size(); ++c) {
    const Channel& channel = p.channels[c];
    text += fmt::format("channel {}: part {} of {} of each chunk\n", c, channel.part, channel.parts);
    for (const Loop& loop : channel.loops) {
      text += loop.message < 0 ? "  for each tile\n"
                               : fmt::format("  for each tile of message {}\n", loop.message);
      for (size_t s = 0; s < loop.steps.size(); ++s) {
        const Step& step = loop.steps[s];
        text += fmt::format("  {:4}  {}\n", s, step_text(step, messages));
      }
    }
  }
  return text;
}

}  // namespace muster
