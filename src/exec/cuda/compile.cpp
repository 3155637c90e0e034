#include "exec/cuda/compile.h"

#include <algorithm>

#include "base/error.h"
#include "base/math.h"

namespace muster::cuda {
namespace {

class KernelCompiler {
 public:
  KernelCompiler(const Program& program, const CallShape& call, size_t tile_bytes,
                 const MailboxShape& mailbox, const ChunkTable* table, Protocol protocol)
      : program_(program), mailbox_(mailbox), layout_(program, call.count, size_of(call.type), table) {
    const bool reducing = reduces(call.coll);
    image_.call = call;
    image_.sent.resize(static_cast<size_t>(program.nranks));
    image_.lines = protocol == Protocol::ll;
    image_.tile = std::max<uint64_t>(1, tile_bytes / layout_.element());
    image_.scratch_bytes = layout_.scratch_bytes();
    image_.divisor = reducing && call.op == RedOp::avg ? static_cast<uint32_t>(program.nranks) : 0;
    weighs_ = reducing && call.op == RedOp::pre_mul_sum;
    truths_ = reducing && call.op >= RedOp::logical_and;
    pairwise_table_ = table && is_pairwise(program.coll);
  }

  KernelImage compile() {
    if (program_.channels.size() > kMostKernelChannels)
      fail(Result::invalid_usage,
           "{} {} of {} ranks has {} channels; kernels run up to {}. Choose fewer (MUSTER_CHANNELS)",
           program_.algorithm, name_of(program_.coll), program_.nranks, program_.channels.size(),
           kMostKernelChannels);
    for (const Channel& c : program_.channels) channel(c);
    return std::move(image_);
  }

 private:
  template <class T>
  static uint32_t end_of(const std::vector<T>& v) {
    return static_cast<uint32_t>(v.size());
  }

  void channel(const Channel& c) {
    const uint32_t first = end_of(image_.loops);
    for (const Loop& l : c.loops) {
      KernelLoop loop{};
      loop.first = end_of(image_.steps);
      for (const Step& s : l.steps) step(s, c);
      loop.last = end_of(image_.steps);
      loop.tiles = std::max<uint64_t>(1, ceil_div(layout_.longest_part(c), image_.tile));
      loop.sends_empty = pairwise_table_;
      image_.loops.push_back(loop);
    }
    image_.channels.push_back({first, end_of(image_.loops)});
  }

  void step(const Step& s, const Channel& c) {
    if (s.sources.size() > kMostKernelPlaces || s.destinations.size() > kMostKernelPlaces)
      fail(Result::invalid_usage,
           "{} {} of {} ranks has a step with {} sources and {} destinations; {} are the most. Choose "
           "another MUSTER_ALGO",
           program_.algorithm, name_of(program_.coll), program_.nranks, s.sources.size(),
           s.destinations.size(), kMostKernelPlaces);
    KernelStep out{};
    out.place = end_of(image_.places);
    out.sources = end_of(s.sources);
    out.destinations = end_of(s.destinations);
    out.pieces = s.pieces;
    out.finish = s.finish && image_.divisor > 1;
    out.length = end_of(image_.lengths);
    out.offset = end_of(image_.offsets);
    uint64_t message = 0, all = 0;  // bytes in a slot, and of the step
    for (uint32_t j = 0; j < s.pieces; ++j) {
      const Cut part = layout_.parts(s.extent + j, c);
      const uint64_t length = part.length(c.part);
      image_.lengths.push_back(length);
      out.longest = std::max(out.longest, length);
      message += bytes_in_slot(std::min(length, image_.tile) * layout_.element());
      all += length * layout_.element();
      const uint64_t start = part.begin(c.part) * layout_.element();
      for (const Ref& r : s.sources) image_.offsets.push_back(layout_.offset(r, j) + start);
      for (const Ref& r : s.destinations) image_.offsets.push_back(layout_.offset(r, j) + start);
    }
    image_.longest_pass =
        std::max(image_.longest_pass, std::min(out.longest, image_.tile) * layout_.element());
    if (pairwise_table_ && s.pieces) out.mark = layout_.length(s.extent);
    out.first_use = end_of(image_.uses);
    for (size_t j = 0; j < s.sources.size(); ++j) {
      if (s.sources[j].raw && weighs_) out.weighted |= uint64_t{1} << j;
      place(s.sources[j], false, message);
    }
    for (const Ref& r : s.destinations) place(r, true, message);
    for (const Ref& r : s.sources)
      if (r.kind == Ref::Kind::window) count(r, all);
    for (const Ref& r : s.destinations)
      if (r.kind != Ref::Kind::local) count(r, all);
    out.last_use = end_of(image_.uses);
    out.combines =
        s.pieces > 0 && (s.sources.size() > 1 || out.finish || (s.finish && truths_) || out.weighted != 0);
    image_.steps.push_back(out);
  }

  void count(const Ref& r, uint64_t bytes) {
    if (r.peer != program_.rank) image_.sent[static_cast<size_t>(r.peer)] += bytes;
  }

  // As the interpreter counts them.
  uint64_t bytes_in_slot(uint64_t bytes) const {
    return image_.lines ? ceil_div(bytes, uint64_t{kLineData}) * kLineBytes : bytes;
  }

  void place(const Ref& r, bool destination, uint64_t message) {
    switch (r.kind) {
      case Ref::Kind::local:
        image_.places.push_back({KernelPlace::local, r.buffer, 0});
        break;
      case Ref::Kind::window:
        // What peers' buffers hold is ordered by tokens, and those of LL order nothing but themselves.
        if (image_.lines)
          fail(Result::invalid_usage,
               "{} {} uses peers' buffers, which protocol LL can't. Choose NCCL_PROTO=Simple",
               program_.algorithm, name_of(program_.coll));
        image_.windows = true;
        image_.places.push_back({KernelPlace::window, r.buffer, static_cast<uint32_t>(r.peer)});
        break;
      case Ref::Kind::slot: {
        const size_t most = image_.lines ? mailbox_.line_bytes : mailbox_.slot_bytes;
        if (message > most || r.lane >= mailbox_.lanes || r.peer >= mailbox_.ranks)
          fail(Result::internal_error,
               "{} {}: a message of {} bytes with rank {} on lane {}; slots have {} bytes, there are {} "
               "ranks and {} lanes",
               program_.algorithm, name_of(program_.coll), message, r.peer, r.lane, most, mailbox_.ranks,
               mailbox_.lanes);
        const uint32_t end = (destination ? sending_end : receiving_end)(mailbox_, r.peer, r.lane);
        image_.places.push_back({KernelPlace::slot, 0, end});
        image_.uses.push_back({end, destination});
        image_.own_lanes &= r.lane == image_.channels.size();
        break;
      }
    }
  }

  const Program& program_;
  const MailboxShape& mailbox_;
  ChunkLayout layout_;
  KernelImage image_;
  bool weighs_ = false;
  bool truths_ = false;  // a result of one source must become 0 or 1, too
  bool pairwise_table_ = false;
};

}  // namespace

KernelImage compile_for_kernels(const Program& program, const CallShape& call, size_t tile_bytes,
                                const MailboxShape& mailbox, const ChunkTable* table, Protocol protocol) {
  return KernelCompiler(program, call, tile_bytes, mailbox, table, protocol).compile();
}

}  // namespace muster::cuda
