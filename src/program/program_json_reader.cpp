#include <array>
#include <charconv>
#include <optional>

#include "base/json_document.h"
#include "base/text.h"
#include "program/builder.h"
#include "program/place.h"
#include "program/program_json.h"

namespace muster {
namespace {

// A reference's text, word by word.
class Words {
 public:
  explicit Words(std::string_view text) : left_(text) {}
  bool word(std::string_view w) {
    skip();
    if (!left_.starts_with(w)) return false;
    left_.remove_prefix(w.size());
    return true;
  }
  std::optional<uint32_t> number() {
    skip();
    uint32_t n = 0;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), n);
    if (error != std::errc()) return std::nullopt;
    left_.remove_prefix(static_cast<size_t>(end - left_.data()));
    return n;
  }
  bool done() {
    skip();
    return left_.empty();
  }

 private:
  void skip() {
    while (left_.starts_with(' ')) left_.remove_prefix(1);
  }
  std::string_view left_;
};

// "[3]" after a buffer's name.
std::optional<Ref> parse_place(Words& w) {
  Ref r;
  if (w.word("input")) {
    r.buffer = kInput;
  } else if (w.word("output")) {
    r.buffer = kOutput;
  } else if (w.word("scratch")) {
    r.buffer = kScratch;
  } else {
    return std::nullopt;
  }
  if (!w.word("[")) return std::nullopt;
  const auto chunk = w.number();
  if (!chunk || !w.word("]")) return std::nullopt;
  r.chunk = *chunk;
  return r;
}

std::optional<Ref> parse_ref(std::string_view text) {
  Words w(text);
  std::optional<Ref> r;
  if (w.word("peer")) {
    const auto peer = w.number();
    std::optional<uint32_t> lane = 0;
    if (w.word("lane")) lane = w.number();
    if (!peer || *peer >= kMostProgramRanks || !lane || *lane >= kMostProgramLanes) return std::nullopt;
    r = slot(static_cast<int32_t>(*peer), static_cast<uint16_t>(*lane));
  } else if (w.word("window")) {
    const auto peer = w.number();
    if (!peer || *peer >= kMostProgramRanks) return std::nullopt;
    r = parse_place(w);
    if (!r) return std::nullopt;
    r->kind = Ref::Kind::window;
    r->peer = static_cast<int32_t>(*peer);
  } else {
    r = parse_place(w);
  }
  return w.done() ? r : std::nullopt;
}

class ProgramReader {
 public:
  ProgramReader(std::string_view text, const std::string& name) : d_(text, name) {}

  ProgramSet read() {
    JsonFields f(d_, d_.root());
    if (const JsonValue& v = f.required("muster"); d_.text(v) != "programs")
      d_.refuse(v, "\"programs\" is wanted, found \"{}\"", printable(v.text, 60));
    if (const JsonValue& v = f.required("version"); d_.integer(v, 1, INT64_MAX) > kProgramJsonVersion)
      d_.refuse(v, "version {} is newer than this Muster reads, which is {}", v.magnitude, kProgramJsonVersion);
    const JsonValue& name = f.required("name");
    if (!is_program_name(d_.text(name)))
      d_.refuse(name, "a name of 1 to {} bytes is wanted, without commas, control characters and blanks around it", kMostProgramName);
    set_.name = name.text;
    f.text("idea", &set_.idea);
    set_.idea = printable(set_.idea, 1000);
    head_.algorithm = set_.name;
    read_collective(f.required("collective"));
    const JsonValue& ranks = f.required("ranks");
    const size_t n = d_.array(ranks).size();
    if (n < 1 || n > kMostProgramRanks) d_.refuse(ranks, "the programs of 1 to {} ranks are wanted, found {}", kMostProgramRanks, n);
    head_.nranks = static_cast<int>(n);
    f.boolean("in_place", &set_.in_place);
    read_sizes(f);
    read_chunks(f);
    f.integer("parts", &parts_, 1, kMostProgramParts);
    for (const JsonValue& v : ranks.items) {
      path_ = fmt::format("ranks[{}]", set_.programs.size());
      set_.programs.push_back(program(v));
    }
    path_.clear();
    f.done();
    return std::move(set_);
  }

 private:
  // What is wrong with a value is said by line and column; this adds the path.
  template <class F>
  auto at_path(F f) const {
    try {
      return f();
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("{} (in {})", e.what(), path_));
    }
  }

  void read_collective(const JsonValue& v) {
    std::vector<std::string_view> known;
    for (int i = 0; i < static_cast<int>(Coll::send_recv); ++i) {
      known.push_back(name_of(static_cast<Coll>(i)));
      if (d_.text(v) != known.back()) continue;
      head_.coll = static_cast<Coll>(i);
      return;
    }
    const std::string_view meant = nearest_name(v.text, known);
    if (!meant.empty()) d_.refuse(v, "\"{}\" is no collective. Is \"{}\" meant?", printable(v.text, 60), meant);
    d_.refuse(v, "\"{}\" is no collective. There are: {}", printable(v.text, 60), fmt::join(known, ", "));
  }

  void read_sizes(JsonFields& f) {
    if (const JsonValue* v = f.find("min_bytes")) set_.min_bytes = d_.natural(*v);
    const JsonValue* most = f.find("max_bytes");
    if (most) set_.max_bytes = d_.natural(*most);
    if (most && set_.max_bytes < set_.min_bytes)
      d_.refuse(*most, "{} is less than min_bytes, {}", set_.max_bytes, set_.min_bytes);
  }

  void read_chunks(JsonFields& f) {
    const int n = head_.nranks;
    const JsonValue* root = f.find("root");
    if (root && !rooted(head_.coll)) d_.refuse(*root, "{} has no root", name_of(head_.coll));
    if (rooted(head_.coll) && !root) f.missing("root");
    if (root) head_.root = static_cast<int>(d_.integer(*root, 0, n - 1));
    const JsonValue* chunks = f.find("chunks");
    if (splits_count(head_.coll) && !chunks) f.missing("chunks");
    int64_t count = 1;
    if (chunks) count = d_.integer(*chunks, 1, kMostProgramCells);
    set_chunks(head_, static_cast<uint32_t>(count));
    if (chunks && head_.chunks != static_cast<uint32_t>(count))
      d_.refuse(*chunks, "{} of {} ranks has {} chunks; leave this out", name_of(head_.coll), n, head_.chunks);
  }

  Program program(const JsonValue& v) {
    Program p = head_;
    p.rank = static_cast<int>(set_.programs.size());
    return at_path([&] {
      JsonFields f(d_, v);
      int scratch = 0;
      f.integer("scratch", &scratch, 0, kMostProgramCells);
      p.buffer_chunks[kScratch] = static_cast<uint32_t>(scratch);
      cells_ += (size_t{p.buffer_chunks[kInput]} + p.buffer_chunks[kOutput] + p.buffer_chunks[kScratch]) * static_cast<size_t>(parts_);
      if (cells_ > kMostProgramCells) d_.refuse(v, "more than {} chunks times parts on all ranks", kMostProgramCells);
      const JsonValue& channels = f.required("channels");
      const std::string rank_path = path_;
      for (const JsonValue& c : d_.array(channels)) {
        if (++channels_ > kMostProgramChannels) d_.refuse(c, "more than {} channels on all ranks", kMostProgramChannels);
        path_ = fmt::format("{}.channels[{}]", rank_path, p.channels.size());
        p.channels.push_back(channel(c, p));
      }
      path_ = rank_path;
      f.done();
      return p;
    });
  }

  Channel channel(const JsonValue& v, const Program& p) {
    Channel c;
    c.parts = static_cast<uint16_t>(parts_);
    JsonFields f(d_, v);
    int part = 0;
    f.integer("part", &part, 0, parts_ - 1);
    c.part = static_cast<uint16_t>(part);
    const JsonValue *loops = f.find("loops"), *steps = f.find("steps");
    if ((loops != nullptr) == (steps != nullptr)) d_.refuse(v, "either 'steps', of one loop, or 'loops' is wanted");
    const std::string channel_path = path_;
    if (steps) {
      c.loops.push_back(loop(*steps, p, channel_path + ".steps"));
    } else {
      for (const JsonValue& l : d_.array(*loops)) c.loops.push_back(loop(l, p, fmt::format("{}.loops[{}]", channel_path, c.loops.size())));
    }
    path_ = channel_path;
    f.done();
    return c;
  }

  Loop loop(const JsonValue& v, const Program& p, const std::string& loop_path) {
    Loop l;
    path_ = loop_path;
    for (const JsonValue& s : d_.array(v)) {
      path_ = fmt::format("{}[{}]", loop_path, l.steps.size());
      if (++steps_ > kMostProgramSteps) d_.refuse(s, "more than {} steps on all ranks", kMostProgramSteps);
      l.steps.push_back(step(s, p));
    }
    path_ = loop_path;
    return l;
  }

  Step step(const JsonValue& v, const Program& p) {
    Step s;
    JsonFields f(d_, v);
    const JsonValue *from = f.find("from"), *to = f.find("to");
    if (from) s.sources = refs(*from);
    if (to) s.destinations = refs(*to);
    if (reduces(p.coll))
      for (Ref& r : s.sources) r.raw = r.kind == Ref::Kind::local && r.buffer == kInput;
    int pieces = 1, extent = -1;
    f.integer("pieces", &pieces, 0, kMostProgramCells);
    s.pieces = static_cast<uint32_t>(pieces);
    pieces_ += static_cast<size_t>(pieces) * static_cast<size_t>(parts_);
    if (pieces_ > kMostProgramPieces) d_.refuse(v, "more than {} pieces times parts in all steps", kMostProgramPieces);
    f.integer("extent", &extent, 0, p.chunks - 1);
    f.boolean("finish", &s.finish);
    f.done();
    if (s.pieces == 0) {
      if (extent >= 0) d_.refuse(v, "a step of no pieces passes tokens: leave 'extent' out");
      return s;
    }
    if (s.sources.empty() || s.destinations.empty()) d_.refuse(v, "'from' and 'to' are wanted in a step that moves data");
    s.extent = extent >= 0 ? static_cast<uint32_t>(extent) : extent_of(v, s, p);
    return s;
  }

  // The chunk of the data that an input or output chunk of the step holds.
  uint32_t extent_of(const JsonValue& v, const Step& s, const Program& p) const {
    if (p.chunks == 1) return 0;
    for (const auto* all : {&s.sources, &s.destinations})
      for (const Ref& r : *all)
        if (r.kind != Ref::Kind::slot && r.buffer != kScratch) return data_chunk(p, place_of(p, r, 0)) % p.chunks;
    d_.refuse(v, "'extent' is missing, and no input or output in the step tells which chunk's length it has");
  }

  std::vector<Ref> refs(const JsonValue& v) const {
    std::vector<Ref> all;
    if (!v.is_array()) {
      all.push_back(ref(v));
      return all;
    }
    if (v.items.size() > kMostProgramRefs) d_.refuse(v, "{} of them; {} are the most", v.items.size(), kMostProgramRefs);
    for (const JsonValue& r : v.items) all.push_back(ref(r));
    return all;
  }
  Ref ref(const JsonValue& v) const {
    const auto r = parse_ref(d_.text(v));
    if (!r)
      d_.refuse(v,
                "\"{}\" is no place. There are \"input[3]\", \"output[3]\", \"scratch[3]\", \"peer 5\", \"peer 5 lane 1\" and \"window 5 "
                "output[3]\"; peers are below {}, lanes below {}",
                printable(v.text, 60), kMostProgramRanks, kMostProgramLanes);
    return *r;
  }

  JsonDocument d_;
  ProgramSet set_;
  Program head_;  // what all ranks' programs have in common
  int parts_ = 1;
  std::string path_;  // of what is being read
  size_t cells_ = 0, channels_ = 0, steps_ = 0, pieces_ = 0;
};

}  // namespace

ProgramSet read_program_json(std::string_view text, const std::string& name) { return ProgramReader(text, name).read(); }

}  // namespace muster
