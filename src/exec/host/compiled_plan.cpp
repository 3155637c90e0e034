#include "exec/host/compiled_plan.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/math.h"
#include "exec/chunk_layout.h"

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
    layout_.emplace(program_, call.count, size_of(call.type), table);
    plan_.call = call;
    plan_.choice = choice;
    plan_.kernel = reduces(call.coll) ? reduce_kernel(call.type, call.op) : nullptr;
    plan_.divisor = call.op == RedOp::avg && reduces(call.coll) ? static_cast<uint32_t>(program_.nranks) : 0;
    weigh_ = call.op == RedOp::pre_mul_sum && reduces(call.coll);
    truths_ = call.op >= RedOp::logical_and && reduces(call.coll);
    plan_.tile = std::max<uint64_t>(1, choice.tile_bytes / layout_->element());
    plan_.scratch_bytes = layout_->scratch_bytes();
    for (const Channel& c : program_.channels) channel(c, nullptr);
    plan_.is_short = !plan_.network && plan_.channels.size() == 1 && plan_.loops.size() == 1 && plan_.loops[0].tiles == 1 && !plan_.loops[0].sends_empty && !plan_.steps.empty() &&
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
        layout_.emplace(program_, m.count * size_of(m.type), 1);  // moved as bytes
        tile = tile_bytes_;
      }
      loop.element = static_cast<uint32_t>(layout_->element());
      for (const Step& s : l.steps) step(s, c, tile);
      loop.last = static_cast<uint32_t>(plan_.steps.size());
      loop.tiles = std::max<uint64_t>(1, ceil_div(layout_->longest_part(c), tile));
      plan_.loops.push_back(loop);
    }
    if (sizes) plan_.tile = tile_bytes_;
    out.last = static_cast<uint32_t>(plan_.loops.size());
    plan_.channels.push_back(out);
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
    uint64_t message = 0, all = 0;  // bytes of the longest message, and of all
    for (uint32_t j = 0; j < s.pieces; ++j) {
      const Cut part = layout_->parts(s.extent + j, c);
      const uint64_t length = part.length(c.part);
      plan_.lengths.push_back(length);
      out.longest = std::max(out.longest, length);
      message += std::min(length, tile) * layout_->element();
      all += length * layout_->element();
      const uint64_t start = part.begin(c.part) * layout_->element();
      for (const Ref& r : s.sources) plan_.offsets.push_back(layout_->offset(r, j) + start);
      for (const Ref& r : s.destinations) plan_.offsets.push_back(layout_->offset(r, j) + start);
    }
    if (table_ && is_pairwise(program_.coll) && s.pieces) out.mark = layout_->length(s.extent);
    out.combines = s.pieces > 0 && (s.sources.size() > 1 || out.finish || (s.finish && truths_));
    out.first_receive = static_cast<uint32_t>(plan_.receives.size());
    out.first_send = static_cast<uint32_t>(plan_.sends.size());
    for (const Ref& r : s.sources) {
      place(r, false, message);
      if (r.raw && weigh_) out.combines = true;
    }
    for (const Ref& r : s.destinations) place(r, true, message);
    for (size_t i = out.place; i < plan_.places.size(); ++i) count(plan_.places[i], all);
    out.last_receive = static_cast<uint32_t>(plan_.receives.size());
    out.last_send = static_cast<uint32_t>(plan_.sends.size());
    for (size_t i = s.sources.size(); i < s.sources.size() + s.destinations.size(); ++i) out.streams |= plan_.places[out.place + i].streams;
    plan_.streams |= out.streams;
    out.lies_in = lies_in(out);
    for (size_t i = 0; i < s.sources.size() + s.destinations.size() && s.pieces; ++i)
      plan_.places[out.place + i].offset = plan_.offsets[out.offset + i];
    plan_.steps.push_back(out);
  }

  void count(const StepPlace& p, uint64_t bytes) {
    if (p.kind == StepPlace::Kind::send)
      (p.sender->wired() ? plan_.bytes_sent.network : plan_.bytes_sent.shared_memory) += bytes;
    else if (p.kind == StepPlace::Kind::window && p.peer != program_.rank)
      plan_.bytes_sent.direct += bytes;
  }

  // A result that is stored anyway, or a source that is sent as it is.
  int16_t lies_in(const CompiledStep& s) const {
    const StepPlace* const places = &plan_.places[s.place];
    const int sources = s.sources, n = sources + s.destinations;
    if (s.pieces != 1 || std::none_of(places + sources, places + n, [](const StepPlace& p) { return p.sender && p.sender->wired(); })) return -1;
    for (int i = sources; i < n; ++i)
      if (places[i].kind == StepPlace::Kind::local) return static_cast<int16_t>(i);
    return !s.combines && places[0].kind == StepPlace::Kind::local ? int16_t{0} : int16_t{-1};
  }

  template <class End>
  static void add_end(std::vector<End>* ends, const End& e) {
    if (std::none_of(ends->begin(), ends->end(), [&](const End& o) { return same_end(o, e); })) ends->push_back(e);
  }
  static bool same_end(const CompiledPlan::Send& a, const CompiledPlan::Send& b) { return a.to == b.to; }
  static bool same_end(const CompiledPlan::Receive& a, const CompiledPlan::Receive& b) { return a.from == b.from; }

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
          const bool wired = p.sender->wired();
          plan_.sends.push_back({p.sender, r.peer, message <= kHalfBytes && !wired && !answers_[static_cast<size_t>(r.peer)]});
          if (wired) {
            p.streams = 0;  // the network reads it from the cache
            plan_.network = transport_;
            add_end(&plan_.to_hosts, plan_.sends.back());
          }
        } else {
          p.receiver = &transport_->receiver(r.peer, r.lane);
          plan_.receives.push_back({p.receiver, r.peer});
          if (p.receiver->wired()) {
            plan_.network = transport_;
            add_end(&plan_.from_hosts, plan_.receives.back());
          }
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
  std::optional<ChunkLayout> layout_;
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
