// Programs as text and as pictures.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string>
#include <tuple>

#include "program/program.h"

namespace muster {

namespace {

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

template <class F>
void for_each_step(const Program& p, F f) {
  for (size_t c = 0; c < p.channels.size(); ++c)
    for (size_t l = 0; l < p.channels[c].loops.size(); ++l)
      for (size_t s = 0; s < p.channels[c].loops[l].steps.size(); ++s)
        f(c, l, s, p.channels[c].loops[l].steps[s]);
}

}  // namespace

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

// A cluster per rank with its steps from top to bottom; an arrow per message.
std::string to_dot(const std::vector<Program>& all_ranks) {
  std::string text =
      "digraph program {\n  rankdir=TB;\n  node [shape=box, fontname=\"monospace\", fontsize=10];\n";
  using Connection = std::tuple<int, int, int>;  // sender, receiver, lane
  std::map<Connection, std::vector<std::string>> sent, received;
  for (const Program& p : all_ranks) {
    text += fmt::format("  subgraph cluster_{0} {{\n    label=\"rank {0}\";\n", p.rank);
    std::string previous, previous_channel;
    for_each_step(p, [&](size_t c, size_t l, size_t s, const Step& step) {
      const std::string node = fmt::format("r{}_{}_{}_{}", p.rank, c, l, s);
      text += fmt::format("    {} [label=\"{}\"];\n", node, step_text(step, p.coll == Coll::send_recv));
      const std::string channel = fmt::format("{}", c);
      if (!previous.empty() && channel == previous_channel)
        text += fmt::format("    {} -> {} [style=dotted, arrowhead=none];\n", previous, node);
      previous = node;
      previous_channel = channel;
      for (const Ref& r : step.sources)
        if (r.kind == Ref::Kind::slot) received[{r.peer, p.rank, r.lane}].push_back(node);
      for (const Ref& r : step.destinations)
        if (r.kind == Ref::Kind::slot) sent[{p.rank, r.peer, r.lane}].push_back(node);
    });
    text += "  }\n";
  }
  for (const auto& [connection, from] : sent) {
    const auto& to = received[connection];
    for (size_t i = 0; i < from.size() && i < to.size(); ++i)
      text += fmt::format("  {} -> {};\n", from[i], to[i]);
  }
  return text + "}\n";
}

}  // namespace muster
