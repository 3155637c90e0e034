// All ranks' programs as one picture, in Graphviz's language.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "program/print.h"

namespace muster {

namespace {

// A step.
struct Box {
  std::string name;
  std::vector<std::string> lines;
  const Program* program;
  const Step* step;
  size_t channel;
  size_t row = 0;
};

struct Arrow {
  size_t from, to;  // boxes
  bool message;     // false: to the channel's next step
};

std::vector<std::string> lines_of(size_t number, const Step& s, bool message_buffers) {
  if (s.pieces == 0) return {fmt::format("{}: {}", number, step_text(s, message_buffers))};
  return {fmt::format("{}: {}", number, refs_text(s.sources, " + ", message_buffers)),
          fmt::format("   -> {}{}", refs_text(s.destinations, ", ", message_buffers),
                      s.pieces > 1 ? fmt::format(", {} chunks", s.pieces) : "")};
}

std::vector<Box> boxes_of(const std::vector<Program>& all_ranks) {
  std::vector<Box> boxes;
  for (const Program& p : all_ranks)
    for (size_t c = 0; c < p.channels.size(); ++c)
      for (size_t l = 0; l < p.channels[c].loops.size(); ++l)
        for (size_t s = 0; s < p.channels[c].loops[l].steps.size(); ++s) {
          const Step& step = p.channels[c].loops[l].steps[s];
          boxes.push_back({fmt::format("r{}_{}_{}_{}", p.rank, c, l, s),
                           lines_of(s, step, p.coll == Coll::send_recv), &p, &step, c});
        }
  return boxes;
}

// The i-th message sent on a connection is the i-th received.
std::vector<Arrow> arrows_between(const std::vector<Box>& boxes) {
  std::vector<Arrow> arrows;
  using Link = std::tuple<int, int, int>;  // sender, receiver, lane
  std::map<Link, std::vector<size_t>> sent, received;
  for (size_t b = 0; b < boxes.size(); ++b) {
    const Program* p = boxes[b].program;
    if (b > 0 && boxes[b - 1].program == p && boxes[b - 1].channel == boxes[b].channel)
      arrows.push_back({b - 1, b, false});
    for (const Ref& r : boxes[b].step->sources)
      if (r.kind == Ref::Kind::slot) received[{r.peer, p->rank, r.lane}].push_back(b);
    for (const Ref& r : boxes[b].step->destinations)
      if (r.kind == Ref::Kind::slot) sent[{p->rank, r.peer, r.lane}].push_back(b);
  }
  for (const auto& [connection, from] : sent) {
    const auto& to = received[connection];
    for (size_t i = 0; i < from.size() && i < to.size(); ++i) arrows.push_back({from[i], to[i], true});
  }
  return arrows;
}

// Below the rows of all that comes before. In programs that wait for each other there are no such rows: it
// ends all the same.
void set_rows(std::vector<Box>& boxes, const std::vector<Arrow>& arrows) {
  bool changed = true;
  for (size_t pass = 0; changed && pass < boxes.size(); ++pass) {
    changed = false;
    for (const Arrow& a : arrows)
      if (boxes[a.to].row <= boxes[a.from].row) {
        boxes[a.to].row = boxes[a.from].row + 1;
        changed = true;
      }
  }
}

// Which chunk a step is about: in a collective that doesn't split its data, that of the buffer with a chunk
// per rank.
std::optional<uint32_t> chunk_of(const Program& p, const Step& s) {
  if (s.pieces == 0 || p.coll == Coll::send_recv) return {};
  if (splits_count(p.coll)) return s.extent % p.chunks;
  const uint16_t per_rank = p.buffer_chunks[kInput] > 1 ? kInput : kOutput;
  for (const std::vector<Ref>* refs : {&s.sources, &s.destinations})
    for (const Ref& r : *refs)
      if (r.kind == Ref::Kind::local && r.buffer == per_rank) return r.chunk % p.buffer_chunks[per_rank];
  return {};
}

// What a message carries, and a colour for each chunk, by which one finds it again further on.
std::string message_style(const Box& sender, const Box& receiver) {
  const Program& p = *sender.program;
  const Step& s = *sender.step;
  if (s.pieces == 0) return "style=dashed, color=gray40";
  std::optional<uint32_t> chunk = chunk_of(p, s);
  if (!chunk) chunk = chunk_of(*receiver.program, *receiver.step);
  if (!chunk) return "color=black";
  const uint32_t chunks = std::max({p.chunks, p.buffer_chunks[kInput], p.buffer_chunks[kOutput]});
  const std::string label =
      s.pieces == 1 ? fmt::format("{}", *chunk) : fmt::format("{} from {}", s.pieces, *chunk);
  const std::string colour = fmt::format("\"{:.3f} 1.0 0.75\"", static_cast<double>(*chunk) / chunks);
  return fmt::format("color={0}, fontcolor={0}, label=\"{1}\"", colour, label);
}

}  // namespace

// A column per channel and rank, its steps from top to bottom, and an arrow per message, labelled with the
// chunk that it carries; tokens are dashed, and a thick border says that the result is complete. Places are
// given, so that columns stay straight and in order: the layout engine routes the arrows.
std::string to_dot(const std::vector<Program>& all_ranks) {
  std::vector<Box> boxes = boxes_of(all_ranks);
  const std::vector<Arrow> arrows = arrows_between(boxes);
  set_rows(boxes, arrows);

  std::string text = "digraph program {\n";
  if (!all_ranks.empty()) {
    const Program& p = all_ranks.front();
    text += fmt::format("  label=\"{} {}, {} ranks{}\";\n", p.algorithm, name_of(p.coll), p.nranks,
                        splits_count(p.coll) ? fmt::format(", data in {} chunks", p.chunks) : "");
  }
  text +=
      "  layout=neato; splines=true; labelloc=t; fontname=\"monospace\";\n"
      "  node [shape=box, fontname=\"monospace\", fontsize=10];\n"
      "  edge [fontname=\"monospace\", fontsize=10];\n";

  // Inches. Messages mostly stay within a channel, so that channels lie next to each other.
  constexpr double kLetter = 0.085, kBetween = 1.1, kRow = 1.0, kHeads = 0.6;
  size_t longest = 0;
  for (const Box& b : boxes)
    for (const std::string& line : b.lines) longest = std::max(longest, line.size());
  const double width = static_cast<double>(longest) * kLetter + kBetween;
  std::map<std::pair<size_t, int>, double> columns;  // by channel and rank
  for (const Program& p : all_ranks)
    for (size_t c = 0; c < p.channels.size(); ++c) columns[{c, p.rank}] = 0;
  double x = 0;
  for (auto& [column, place] : columns) {
    const auto& [channel, rank] = column;
    place = x;
    x += width;
    text += fmt::format(
        "  r{0}_{1} [label=\"rank {0}{2}\", shape=plaintext, fontsize=12, pos=\"{3:.2f},0!\"];\n", rank,
        channel, columns.rbegin()->first.first > 0 ? fmt::format(", channel {}", channel) : "", place);
  }
  for (const Box& b : boxes)
    text += fmt::format("  {} [label=\"{}\\l\", pos=\"{:.2f},{:.2f}!\"{}];\n", b.name,
                        fmt::join(b.lines, "\\l"), columns[{b.channel, b.program->rank}],
                        -kHeads - kRow * static_cast<double>(b.row), b.step->finish ? ", penwidth=3" : "");
  for (const Arrow& a : arrows)
    text +=
        fmt::format("  {} -> {} [{}];\n", boxes[a.from].name, boxes[a.to].name,
                    a.message ? message_style(boxes[a.from], boxes[a.to]) : "style=dotted, arrowhead=none");
  return text + "}\n";
}

}  // namespace muster
