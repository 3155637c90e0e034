#include "exec/host/compiled_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/math.h"
#include "program/cut.h"

namespace muster {
namespace {

class Compiler {
 public:
  Compiler(const Program& program, Transport* transport, CompiledPlan* plan)
      : program_(program), transport_(transport), plan_(*plan), answers_(static_cast<size_t>(program.nranks)) {
    for (const Channel& c : program.channels)
      for (const Loop& l : c.loops)
        for (const Step& s : l.steps)
          for (const Ref& r : s.sources)
            if (r.kind == Ref::Kind::slot) answers_[static_cast<size_t>(r.peer)] = true;
  }

  void collective(const CallShape& call, const Choice& choice, const ChunkTable* table) {
    table_ = table;
    element_ = size_of(call.type);
    plan_.call = call;
    plan_.choice = choice;
    plan_.kernel = reduces(call.coll) ? reduce_kernel(call.type, call.op) : nullptr;
    plan_.divisor = call.op == RedOp::avg && reduces(call.coll) ? static_cast<uint32_t>(program_.nranks) : 0;
    weigh_ = call.op == RedOp::pre_mul_sum && reduces(call.coll);
    truths_ = call.op >= RedOp::logical_and && reduces(call.coll);
    const bool split = splits_count(call.coll);
    chunks_ = split ? program_.chunks : 1;
    cut_ = Cut(call.count, chunks_, element_);
    plan_.tile = std::max<uint64_t>(1, choice.tile_bytes / element_);
    scratch_chunk_ = align_up((table ? table->longest() : cut_.longest()) * element_, kCacheLine);
    plan_.scratch_bytes = scratch_chunk_ * program_.buffer_chunks[kScratch];
    for (const Channel& c : program_.channels) channel(c, nullptr);
    plan_.is_short = plan_.channels.size() == 1 && plan_.loops.size() == 1 && plan_.loops[0].tiles == 1 && !plan_.loops[0].sends_empty && !plan_.steps.empty() &&
                     std::all_of(plan_.steps.begin(), plan_.steps.end(), [](const CompiledStep& s) { return s.pieces <= 1; });
  }

  void messages(const std::vector<MessageSize>& sizes, const Choice& choice) {
    plan_.choice = choice;
    plan_.call.coll = Coll::send_recv;
    tile_bytes_ = choice.tile_bytes;
    for (const Channel& c : program_.channels) channel(c, &sizes);
  }

 private:
  void channel(const Channel& c, const std::vector<MessageSize>* sizes) {
    CompiledChannel out;
    out.first = static_cast<uint32_t>(plan_.loops.size());
    for (const Loop& l : c.loops) {
      CompiledLoop loop;
      loop.first = static_cast<uint32_t>(plan_.steps.size());
      loop.message = l.message;
      loop.sends_empty = sizes || (table_ && is_pairwise(program_.coll));
      uint64_t tile = plan_.tile;
      if (sizes) {
        const MessageSize& m = (*sizes)[static_cast<size_t>(l.message)];
        element_ = 1;  // moved as bytes
        cut_ = Cut(m.count * size_of(m.type), 1, 1);
        tile = tile_bytes_;
      }
      loop.element = static_cast<uint32_t>(element_);
      for (const Step& s : l.steps) step(s, c, tile);
      loop.last = static_cast<uint32_t>(plan_.steps.size());
      loop.tiles = std::max<uint64_t>(1, ceil_div(longest_part(c), tile));
      plan_.loops.push_back(loop);
    }
    if (sizes) plan_.tile = tile_bytes_;
    out.last = static_cast<uint32_t>(plan_.loops.size());
    plan_.channels.push_back(out);
  }

  // The longest of all chunks' parts for this channel, also of chunks that only other ranks handle: ranks pass tokens once
  // per tile, so all of them must count the same tiles.
  uint64_t longest_part(const Channel& c) const {
    if (table_) return Cut(table_->longest(), c.parts, element_).length(0);
    uint64_t longest = 0;
    for (uint64_t chunk = 0; chunk < chunks_; ++chunk)
      longest = std::max(longest, Cut(cut_.length(chunk), c.parts, element_).length(c.part));
    return longest;
  }

  void step(const Step& s, const Channel& c, uint64_t tile) {
    if (s.sources.size() > kMostPlaces || s.destinations.size() > kMostPlaces)
      fail(Result::invalid_usage, "{} {} of {} ranks has a step with {} sources and {} destinations; {} are the most. Choose another MUSTER_ALGO",
           program_.algorithm, name_of(program_.coll), program_.nranks, s.sources.size(), s.destinations.size(), kMostPlaces);
    CompiledStep out;
    out.place = static_cast<uint32_t>(plan_.places.size());
    out.sources = static_cast<uint16_t>(s.sources.size());
    out.destinations = static_cast<uint16_t>(s.destinations.size());
    out.pieces = s.pieces;
    out.finish = s.finish && plan_.divisor > 1;
    out.length = static_cast<uint32_t>(plan_.lengths.size());
    out.offset = static_cast<uint32_t>(plan_.offsets.size());
    uint64_t message = 0;
    for (uint32_t j = 0; j < s.pieces; ++j) {
      const Cut part(chunk_length(s.extent + j), c.parts, element_);
      const uint64_t length = part.length(c.part);
      plan_.lengths.push_back(length);
      out.longest = std::max(out.longest, length);
      message += std::min(length, tile) * element_;
      const uint64_t start = part.begin(c.part) * element_;
      for (const Ref& r : s.sources) plan_.offsets.push_back(offset(r, j) + start);
      for (const Ref& r : s.destinations) plan_.offsets.push_back(offset(r, j) + start);
    }
    if (table_ && is_pairwise(program_.coll) && s.pieces) out.mark = chunk_length(s.extent);
    out.combines = s.pieces > 0 && (s.sources.size() > 1 || out.finish || (s.finish && truths_));
    out.first_receive = static_cast<uint32_t>(plan_.receives.size());
    out.first_send = static_cast<uint32_t>(plan_.sends.size());
    for (const Ref& r : s.sources) {
      place(r, false, message);
      if (r.raw && weigh_) out.combines = true;
    }
    for (const Ref& r : s.destinations) place(r, true, message);
    out.last_receive = static_cast<uint32_t>(plan_.receives.size());
    out.last_send = static_cast<uint32_t>(plan_.sends.size());
    for (size_t i = s.sources.size(); i < s.sources.size() + s.destinations.size(); ++i) out.streams |= plan_.places[out.place + i].streams;
    plan_.streams |= out.streams;
    for (size_t i = 0; i < s.sources.size() + s.destinations.size() && s.pieces; ++i)
      plan_.places[out.place + i].offset = plan_.offsets[out.offset + i];
    plan_.steps.push_back(out);
  }

  uint64_t chunk_length(uint32_t chunk) const {
    return table_ ? table_->length(program_, chunk % program_.chunks) : cut_.length(chunk % chunks_);
  }

  uint64_t offset(const Ref& r, uint32_t piece) const {
    if (r.kind == Ref::Kind::slot || program_.coll == Coll::send_recv) return 0;
    const uint32_t chunk = (r.chunk + piece) % std::max<uint32_t>(1, program_.buffer_chunks[r.buffer]);
    if (r.buffer == kScratch) return chunk * scratch_chunk_;
    if (table_) return (r.buffer == kInput ? table_->input : table_->output).at(chunk).begin * element_;
    if (splits_count(program_.coll)) return cut_.begin(chunk) * element_;
    return chunk * cut_.length(0) * element_;
  }

  void place(const Ref& r, bool destination, uint64_t message) {
    StepPlace p;
    p.raw = r.raw && weigh_;
    if (destination)
      p.streams = r.kind == Ref::Kind::slot ? (message >= plan_.choice.stream_slots ? kStreamSlot : 0)
                                            : (r.buffer == kOutput && plan_.choice.streamed ? kStreamOutput : 0);
    p.buffer = r.buffer;
    p.peer = r.peer;
    switch (r.kind) {
      case Ref::Kind::local: p.kind = StepPlace::Kind::local; break;
      case Ref::Kind::window: p.kind = StepPlace::Kind::window; break;
      case Ref::Kind::slot:
        if (message > transport_->slot_bytes())
          fail(Result::internal_error, "{} {}: a message of {} bytes does not fit a slot of {}", program_.algorithm, name_of(program_.coll),
               message, transport_->slot_bytes());
        p.kind = destination ? StepPlace::Kind::send : StepPlace::Kind::receive;
        if (destination) {
          p.sender = &transport_->sender(r.peer, r.lane, message);
          plan_.sends.push_back({p.sender, r.peer, message <= kHalfBytes && !answers_[static_cast<size_t>(r.peer)]});
        } else {
          p.receiver = &transport_->receiver(r.peer, r.lane);
          plan_.receives.push_back({p.receiver, r.peer});
        }
        break;
    }
    plan_.places.push_back(p);
  }

  const Program& program_;
  Transport* transport_;
  CompiledPlan& plan_;
  std::vector<bool> answers_;  // by rank: whether it sends to this one in this program
  const ChunkTable* table_ = nullptr;
  size_t element_ = 1;
  uint64_t chunks_ = 1;
  Cut cut_{0, 1, 1};
  uint64_t scratch_chunk_ = 0;
  size_t tile_bytes_ = 0;
  bool weigh_ = false;
  bool truths_ = false;  // a result of one source must become 0 or 1, too
};

}  // namespace

CompiledPlan compile(const Program& program, const CallShape& call, const Choice& choice, Transport* transport, const ChunkTable* table) {
  CompiledPlan plan;
  Compiler(program, transport, &plan).collective(call, choice, table);
  return plan;
}

CompiledPlan compile_messages(const Program& program, const std::vector<MessageSize>& sizes, const Choice& choice, Transport* transport) {
  CompiledPlan plan;
  Compiler(program, transport, &plan).messages(sizes, choice);
  return plan;
}

}  // namespace muster
