// Threadblocks to channels: a run of the whole algorithm tells which chunk of the data each step handles and in which order the
// steps of one GPU come.
#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "program/builder.h"
#include "program/msccl_algorithm.h"
#include "program/place.h"
#include "program/violation.h"

namespace muster {
namespace {

// What a run knows of a chunk's contents.
struct Value {
  uint32_t chunk = 0, part = 0;  // which part of which chunk of the collective's data
  std::vector<bool> ranks;       // of a reduction: whose contributions are in it
  bool finished = false;
};

// A place of an algorithm's memory: offset in input or output, or after both, in scratch.
struct Cell {
  bool filled = false, pristine = false;  // pristine: it is the caller's input
  Value value;
  Ref where;  // in the program's memory
};

struct TransferMessage {
  size_t sender;  // its step's index in all_
  std::vector<Value> pieces;
};

// A step, with what a run has shown.
struct Done {
  size_t gpu, block, index;
  const MscclStep* step;
  std::vector<std::vector<Ref>> sources;  // of each local operand: a place per piece
  std::vector<Ref> stored;                // by piece
  std::vector<Value> results;             // by piece
  std::vector<bool> finishes;             // by piece
  bool nothing = false;                   // a copy of a place onto itself
  size_t group = 0;                       // steps that hand the same message on: index of one of them
};

class Converter {
 public:
  Converter(const MscclAlgorithm& a, const XmlDocument& d, const std::string& name) : a_(a), d_(d) {
    const auto n = static_cast<uint32_t>(a.gpus.size());
    parts_ = splits_count(a.coll) ? 1 : a.chunks / n;
    if (parts_ > kMostProgramParts)
      d.refuse(d.root(), "{} chunks per rank; {} are the most (nchunksperloop over ngpus)", parts_, kMostProgramParts);
    for (uint32_t g = 0; g < n; ++g) {
      Program p = Builder(name.c_str(), a.coll, static_cast<int>(n), static_cast<int>(g), a.root, splits_count(a.coll) ? a.chunks : 1).done();
      p.channels.clear();
      programs_.push_back(std::move(p));
    }
    input_ = programs_[0].buffer_chunks[kInput] * parts_;
    output_ = programs_[0].buffer_chunks[kOutput] * parts_;
    size_t cells = 0;
    for (const MscclGpu& g : a.gpus) cells += 2 * (size_t{input_} + output_) + g.scratch;
    if (cells > kMostProgramCells) d.refuse(d.root(), "more than {} chunks of all buffers of all GPUs", kMostProgramCells);
    fill_memory();
  }

  std::vector<Program> convert() {
    run_whole();
    cut();
    number_lanes();
    join_blocks();
    run_cut();
    copy_what_stays();
    return std::move(programs_);
  }

 private:
  Program& program(size_t gpu) { return programs_[gpu]; }

  // --- memory ---

  size_t own_first(size_t gpu) const { return gpu * parts_; }  // of a rank's own block in a buffer of all ranks' blocks

  // The cell of a place; in place, input and output are one.
  size_t cell(size_t gpu, char buffer, uint32_t offset, const MscclStep& s) const {
    const uint32_t size = buffer == 'i' ? input_ : buffer == 'o' ? output_ : a_.gpus[gpu].scratch;
    if (offset >= size)
      d_.refuse(s.at, "{}[{}]: gpu {} has {} chunks there", buffer == 'i' ? "input" : buffer == 'o' ? "output" : "scratch", offset, gpu, size);
    if (buffer == 's') return size_t{input_} + output_ + offset;
    if (a_.in_place) {
      if (a_.coll == Coll::reduce_scatter) return buffer == 'i' ? offset : own_first(gpu) + offset;
      if (buffer == 'i') return input_ + offset + (a_.coll == Coll::all_gather ? own_first(gpu) : 0);
    }
    return buffer == 'i' ? offset : input_ + offset;
  }

  // The index in the input that is in this cell at first; nothing: there is none.
  std::optional<uint32_t> input_index(size_t gpu, size_t cell) const {
    if (!has_buffer(programs_[gpu], static_cast<int>(gpu), kInput)) return std::nullopt;
    if (cell < input_) return a_.in_place && a_.coll != Coll::reduce_scatter ? std::nullopt : std::optional(static_cast<uint32_t>(cell));
    if (!a_.in_place || a_.coll == Coll::reduce_scatter || cell >= size_t{input_} + output_) return std::nullopt;
    const size_t first = input_ + (a_.coll == Coll::all_gather ? own_first(gpu) : 0);
    if (cell < first || cell >= first + input_) return std::nullopt;
    return static_cast<uint32_t>(cell - first);
  }
  // The index in the output that is in this cell in the end.
  std::optional<uint32_t> output_index(size_t gpu, size_t cell) const {
    if (!has_buffer(programs_[gpu], static_cast<int>(gpu), kOutput)) return std::nullopt;
    if (a_.in_place && a_.coll == Coll::reduce_scatter) {
      if (cell < own_first(gpu) || cell >= own_first(gpu) + parts_) return std::nullopt;
      return static_cast<uint32_t>(cell - own_first(gpu));
    }
    if (cell < input_ || cell >= size_t{input_} + output_) return std::nullopt;
    return static_cast<uint32_t>(cell - input_);
  }

  // Which data is in an input or output, as place.h has it, and which part of it.
  Value data_of(size_t gpu, uint16_t buffer, uint32_t index) const {
    Value v;
    v.chunk = data_chunk(programs_[gpu], {static_cast<int>(gpu), buffer, index / parts_});
    v.part = index % parts_;
    return v;
  }

  void fill_memory() {
    for (size_t g = 0; g < a_.gpus.size(); ++g) {
      memory_.emplace_back(size_t{input_} + output_ + a_.gpus[g].scratch);
      for (size_t c = 0; c < size_t{input_} + output_; ++c) {
        const auto index = input_index(g, c);
        if (!index) continue;
        Cell& to = memory_[g][c];
        to.filled = to.pristine = true;
        to.value = data_of(g, kInput, *index);
        if (reduces(a_.coll)) {
          to.value.ranks.resize(a_.gpus.size());
          to.value.ranks[g] = true;
        }
        to.where = reduces(a_.coll) ? contribution(*index / parts_) : input(*index / parts_);
      }
    }
  }

  // An output only ever holds its own data, and an input isn't written: what else there is goes to scratch behind the
  // algorithm's own.
  Ref place_for(size_t gpu, size_t cell, const Value& v) {
    Program& p = program(gpu);
    if (const auto out = output_index(gpu, cell)) {
      const Value own = data_of(gpu, kOutput, *out);
      if (own.chunk == v.chunk && own.part == v.part) return output(*out / parts_);
    }
    const size_t buffers = size_t{input_} + output_;
    const auto at = static_cast<uint32_t>(cell >= buffers ? cell - buffers : a_.gpus[gpu].scratch + cell);
    p.buffer_chunks[kScratch] = std::max(p.buffer_chunks[kScratch], at + 1);
    return scratch(at);
  }

  // --- the whole run ---

  using Link = std::tuple<size_t, size_t, int>;  // sender, receiver, channel

  void run_whole() {
    std::vector<std::vector<size_t>> next;  // step, by GPU and block
    for (size_t g = 0; g < a_.gpus.size(); ++g) {
      next.emplace_back(a_.gpus[g].blocks.size());
      for (size_t b = 0; b < a_.gpus[g].blocks.size(); ++b) {
        first_.emplace(std::pair(g, b), all_.size());
        for (const MscclStep& s : a_.gpus[g].blocks[b].steps) all_.push_back({g, b, all_.size() - first_[{g, b}], &s, {}, {}, {}, {}, false, all_.size()});
      }
    }
    std::map<Link, std::deque<TransferMessage>> messages;
    const auto depends = [&](const Done& s) {
      return s.step->dep_block >= 0 && next[s.gpu][static_cast<size_t>(s.step->dep_block)] <= static_cast<size_t>(s.step->dep_step);
    };
    const auto ready = [&](const Done& s) {
      const MscclBlock& b = block_of(s);
      return !depends(s) && (!s.step->receives || !messages[{static_cast<size_t>(b.recv), s.gpu, b.channel}].empty());
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t g = 0; g < next.size(); ++g)
        for (size_t b = 0; b < next[g].size(); ++b)
          while (next[g][b] < a_.gpus[g].blocks[b].steps.size()) {
            Done& s = all_[first_[{g, b}] + next[g][b]];
            if (!ready(s)) break;
            execute(s, messages);
            ++next[g][b];
            moved = true;
          }
    }
    for (const Done& s : all_)
      if (s.index >= next[s.gpu][s.block])
        d_.refuse(s.step->at, "gpu {} waits for ever, {}", s.gpu,
                  depends(s) ? "for the step that it depends on" : fmt::format("for a message from gpu {}", block_of(s).recv));
  }

  const MscclBlock& block_of(const Done& s) const { return a_.gpus[s.gpu].blocks[s.block]; }

  void execute(Done& s, std::map<Link, std::deque<TransferMessage>>& messages) {
    const MscclStep& step = *s.step;
    const MscclBlock& b = block_of(s);
    if (!step.receives && !step.reads) return;  // it has waited
    std::vector<std::vector<Value>> operands;
    if (step.receives) {
      auto& queue = messages[{static_cast<size_t>(b.recv), s.gpu, b.channel}];
      const TransferMessage m = std::move(queue.front());
      queue.pop_front();
      if (m.pieces.size() != step.count)
        d_.refuse(step.at, "{} chunks are received, and gpu {} sends {}", step.count, b.recv, m.pieces.size());
      s.group = m.sender;
      operands.push_back(m.pieces);
    }
    if (step.adds_to) operands.push_back(read(s, step.dst_buffer, step.dst));
    if (step.reads) operands.push_back(read(s, step.src_buffer, step.src));
    for (uint32_t piece = 0; piece < step.count; ++piece) s.results.push_back(combine(s, operands, piece));
    s.finishes.resize(step.count);
    for (uint32_t piece = 0; piece < step.count; ++piece) {
      Value& v = s.results[piece];
      if (!reduces(a_.coll) || v.finished || std::find(v.ranks.begin(), v.ranks.end(), false) != v.ranks.end()) continue;
      s.finishes[piece] = v.finished = true;
    }
    if (step.stores) store(s);
    if (step.sends) messages[{s.gpu, static_cast<size_t>(b.send), b.channel}].push_back({static_cast<size_t>(&s - all_.data()), s.results});
  }

  std::vector<Value> read(Done& s, char buffer, uint32_t offset) {
    std::vector<Value> values;
    s.sources.emplace_back();
    for (uint32_t piece = 0; piece < s.step->count; ++piece) {
      const Cell& from = memory_[s.gpu][cell(s.gpu, buffer, offset + piece, *s.step)];
      if (!from.filled) d_.refuse(s.step->at, "gpu {} reads {}[{}], where nothing is yet", s.gpu, buffer, offset + piece);
      s.sources.back().push_back(from.where);
      values.push_back(from.value);
    }
    return values;
  }

  Value combine(const Done& s, const std::vector<std::vector<Value>>& operands, uint32_t piece) const {
    Value v = operands[0][piece];
    for (size_t i = 1; i < operands.size(); ++i) {
      const Value& other = operands[i][piece];
      if (other.chunk != v.chunk || other.part != v.part)
        d_.refuse(s.step->at, "gpu {} combines chunk {} of the data with chunk {}", s.gpu, v.chunk * parts_ + v.part, other.chunk * parts_ + other.part);
      for (size_t r = 0; r < v.ranks.size(); ++r) v.ranks[r] = v.ranks[r] || other.ranks[r];
      v.finished = v.finished || other.finished;
    }
    return v;
  }

  void store(Done& s) {
    const MscclStep& step = *s.step;
    s.nothing = !step.receives && !step.adds_to && !step.sends && step.count > 0;
    for (uint32_t piece = 0; piece < step.count; ++piece) {
      const size_t to = cell(s.gpu, step.dst_buffer, step.dst + piece, step);
      s.nothing = s.nothing && to == cell(s.gpu, step.src_buffer, step.src + piece, step);
    }
    if (s.nothing) return;
    for (uint32_t piece = 0; piece < step.count; ++piece) {
      Cell& to = memory_[s.gpu][cell(s.gpu, step.dst_buffer, step.dst + piece, step)];
      const Value& v = s.results[piece];
      to = {true, false, v, place_for(s.gpu, cell(s.gpu, step.dst_buffer, step.dst + piece, step), v)};
      s.stored.push_back(to.where);
    }
  }

  // --- cutting steps of several chunks where a program's step can't have them together ---

  size_t group_of(size_t i) const {
    while (all_[i].group != i) i = all_[i].group;
    return i;
  }

  static bool follows(const Ref& a, const Ref& b) {
    Ref next = a;
    ++next.chunk;
    return next == b;
  }

  // All ends of a message are cut alike, and who hands it on, too.
  void cut() {
    cuts_.resize(all_.size());
    for (size_t i = 0; i < all_.size(); ++i) {
      const Done& s = all_[i];
      auto& cuts = cuts_[group_of(i)];
      for (uint32_t at = 1; at < s.results.size(); ++at) {
        bool together = parts_ == 1 && s.results[at].chunk == s.results[at - 1].chunk + 1 && s.finishes[at] == s.finishes[at - 1];
        for (const auto& places : s.sources) together = together && follows(places[at - 1], places[at]);
        if (!s.stored.empty()) together = together && follows(s.stored[at - 1], s.stored[at]);
        if (!together) cuts.insert(at);
      }
    }
  }

  // Between two GPUs each channel and part has a lane of its own.
  void number_lanes() {
    for (const Done& s : all_)
      if (s.step->sends)
        for (const Value& v : s.results) lanes_[{s.gpu, static_cast<size_t>(block_of(s).send)}].emplace(std::pair(block_of(s).channel, v.part), 0);
    for (auto& [ends, lanes] : lanes_) {
      if (lanes.size() > kMostProgramLanes)
        d_.refuse(a_.gpus[ends.first].at, "gpu {} needs {} connections to gpu {}; {} are the most", ends.first, lanes.size(), ends.second, kMostProgramLanes);
      uint16_t lane = 0;
      for (auto& [key, number] : lanes) number = lane++;
    }
  }
  Ref connection(size_t sender, size_t receiver, int channel, uint32_t part, size_t peer) const {
    return slot(static_cast<int32_t>(peer), lanes_.at({sender, receiver}).at({channel, part}));
  }

  // Blocks of a GPU that wait for each other become one.
  void join_blocks() {
    for (size_t g = 0; g < a_.gpus.size(); ++g) {
      auto& joined = joined_.emplace_back(a_.gpus[g].blocks.size());
      std::iota(joined.begin(), joined.end(), size_t{0});
      const auto root = [&](size_t b) {
        while (joined[b] != b) b = joined[b];
        return b;
      };
      for (size_t b = 0; b < joined.size(); ++b)
        for (const MscclStep& s : a_.gpus[g].blocks[b].steps)
          if (s.dep_block >= 0) joined[root(b)] = root(static_cast<size_t>(s.dep_block));
      for (size_t b = 0; b < joined.size(); ++b) joined[b] = root(b);
    }
  }

  // --- the run of cut steps, which gives the order ---

  struct Piece {
    size_t step;  // in all_
    uint32_t first, count;
    bool last;  // of its step
  };

  void run_cut() {
    // By GPU and block. A step without pieces is one that only waits.
    std::vector<std::vector<std::deque<Piece>>> left;
    for (const MscclGpu& g : a_.gpus) left.emplace_back(g.blocks.size());
    std::vector<bool> done(all_.size());
    for (size_t i = 0; i < all_.size(); ++i) {
      const auto& cuts = cuts_[group_of(i)];
      const auto pieces = static_cast<uint32_t>(all_[i].results.size());
      auto& to = left[all_[i].gpu][all_[i].block];
      uint32_t first = 0;
      for (const uint32_t at : cuts) {
        to.push_back({i, first, at - first, false});
        first = at;
      }
      to.push_back({i, first, pieces - first, true});
    }
    constexpr int kSlots = 2;
    std::map<std::tuple<size_t, size_t, uint16_t>, int> held;  // messages: sender, receiver, lane
    const auto try_piece = [&](const Piece& piece) {
      const Done& s = all_[piece.step];
      const MscclBlock& b = block_of(s);
      if (s.step->dep_block >= 0 && !done[first_.at({s.gpu, static_cast<size_t>(s.step->dep_block)}) + static_cast<size_t>(s.step->dep_step)]) return false;
      int *received = nullptr, *sent = nullptr;
      if (s.step->receives) received = &held[{static_cast<size_t>(b.recv), s.gpu, receive(s, piece.first).lane}];
      if (s.step->sends) sent = &held[{s.gpu, static_cast<size_t>(b.send), send(s, piece.first).lane}];
      if ((received && *received == 0) || (sent && *sent == kSlots)) return false;
      if (received) --*received;
      if (sent) ++*sent;
      return true;
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& blocks : left)
        for (auto& pieces : blocks) {
          if (pieces.empty() || !try_piece(pieces.front())) continue;
          emit(pieces.front());
          if (pieces.front().last) done[pieces.front().step] = true;
          pieces.pop_front();
          moved = true;
        }
    }
    for (const auto& blocks : left)
      for (const auto& pieces : blocks)
        if (!pieces.empty())
          d_.refuse(all_[pieces.front().step].step->at, "gpu {} waits for ever where a connection holds {} messages, which is what there is at least",
                    all_[pieces.front().step].gpu, kSlots);
  }

  Ref receive(const Done& s, uint32_t piece) const {
    const MscclBlock& b = block_of(s);
    return connection(static_cast<size_t>(b.recv), s.gpu, b.channel, s.results[piece].part, static_cast<size_t>(b.recv));
  }
  Ref send(const Done& s, uint32_t piece) const {
    const MscclBlock& b = block_of(s);
    return connection(s.gpu, static_cast<size_t>(b.send), b.channel, s.results[piece].part, static_cast<size_t>(b.send));
  }

  // The channel of a GPU's joined blocks for a part.
  Channel& channel(size_t gpu, size_t joined, uint32_t part) {
    Program& p = program(gpu);
    const auto [at, fresh] = channels_.try_emplace({gpu, joined, part}, p.channels.size());
    if (fresh) {
      Channel c;
      c.part = static_cast<uint16_t>(part);
      c.parts = static_cast<uint16_t>(parts_);
      c.loops.resize(1);
      p.channels.push_back(std::move(c));
    }
    return p.channels[at->second];
  }

  void emit(const Piece& piece) {
    const Done& s = all_[piece.step];
    if (piece.count == 0 || s.nothing) return;
    Step to;
    to.extent = s.results[piece.first].chunk;
    to.pieces = piece.count;
    to.finish = s.finishes[piece.first];
    if (s.step->receives) to.sources.push_back(receive(s, piece.first));
    for (const auto& places : s.sources) to.sources.push_back(places[piece.first]);
    if (!s.stored.empty()) to.destinations.push_back(s.stored[piece.first]);
    if (s.step->sends) to.destinations.push_back(send(s, piece.first));
    channel(s.gpu, joined_[s.gpu][s.block], s.results[piece.first].part).loops[0].steps.push_back(std::move(to));
  }

  // Of an algorithm for one buffer: what lies where it is wanted from the start must be copied where there are two.
  void copy_what_stays() {
    if (!a_.in_place) return;
    for (size_t g = 0; g < a_.gpus.size(); ++g)
      for (size_t c = 0; c < size_t{input_} + output_; ++c) {
        const Cell& cell = memory_[g][c];
        const auto out = output_index(g, c);
        if (!cell.pristine || !out) continue;
        const Value own = data_of(g, kOutput, *out);
        if (own.chunk != cell.value.chunk || own.part != cell.value.part) continue;
        const bool complete = reduces(a_.coll) && a_.gpus.size() == 1;
        Step copy{{cell.where}, {output(*out / parts_)}, cell.value.chunk, 1, complete};
        auto& channels = program(g).channels;
        const auto at = std::find_if(channels.begin(), channels.end(), [&](const Channel& k) { return k.part == cell.value.part; });
        Channel& to = at != channels.end() ? *at : channel(g, a_.gpus[g].blocks.size(), cell.value.part);
        to.loops[0].steps.push_back(std::move(copy));
      }
  }

  const MscclAlgorithm& a_;
  const XmlDocument& d_;
  std::vector<Program> programs_;
  uint32_t parts_ = 1;
  uint32_t input_ = 0, output_ = 0;          // chunks of each in the algorithm's count
  std::vector<std::vector<Cell>> memory_;    // by GPU
  std::vector<Done> all_;                    // steps, by GPU, block and place in it
  std::map<std::pair<size_t, size_t>, size_t> first_;  // GPU and block -> its first step in all_
  std::vector<std::set<uint32_t>> cuts_;     // by group
  std::map<std::pair<size_t, size_t>, std::map<std::pair<int, uint32_t>, uint16_t>> lanes_;
  std::vector<std::vector<size_t>> joined_;  // by GPU and block
  std::map<std::tuple<size_t, size_t, uint32_t>, size_t> channels_;
};

}  // namespace

std::vector<Program> msccl_programs(const MscclAlgorithm& algorithm, const XmlDocument& document, const std::string& name) {
  return Converter(algorithm, document, name).convert();
}

}  // namespace muster
