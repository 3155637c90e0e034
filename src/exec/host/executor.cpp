#include "exec/host/executor.h"

#include <algorithm>

#include "device/host/small_copy.h"

namespace muster {
namespace {

// Copied in place of a call: most of what a few bytes cost is calls.
constexpr size_t kShortCopy = 64;
// A network is looked at between steps that move so much: a look takes half a microsecond, and copying this several.
constexpr uint64_t kLookEvery = 32 << 10;

}  // namespace

Run::Run(const CompiledPlan& plan, std::byte* const* buffers, const uint64_t* fingerprints, uint64_t weight_bits, WindowTable windows,
         bool stream_slots)
    : plan_(plan),
      buffers_(buffers),
      fingerprints_(fingerprints),
      weight_bits_(weight_bits),
      windows_(windows),
      streams_(stream_slots ? kStreamOutput | kStreamSlot : kStreamOutput) {
  if (plan.is_short) {
    remaining_ = 1;
    return;
  }
  const size_t n = plan.channels.size();
  cursors_ = small_;
  if (n > kSmallChannels) {
    many_ = std::make_unique<Cursor[]>(n);
    cursors_ = many_.get();
  }
  for (size_t c = 0; c < n; ++c) {
    const CompiledChannel& channel = plan.channels[c];
    cursors_[c] = {0, channel.first, 0};
    if (channel.first == channel.last) continue;
    cursors_[c].step = plan.loops[channel.first].first;
    ++remaining_;
    skip_empty(channel, &cursors_[c]);
  }
  if (plan.network && remaining_) ++remaining_;
}

// Puts the cursor on a step; counts the channel as finished when there is none left.
void Run::skip_empty(const CompiledChannel& channel, Cursor* cursor) {
  while (cursor->step == plan_.loops[cursor->loop].last) {
    const CompiledLoop& loop = plan_.loops[cursor->loop];
    if (loop.first != loop.last && ++cursor->tile < loop.tiles) {
      cursor->step = loop.first;
      return;
    }
    cursor->tile = 0;
    if (++cursor->loop == channel.last) {
      --remaining_;
      return;
    }
    cursor->step = plan_.loops[cursor->loop].first;
  }
}

bool Run::advance() {
  if (plan_.is_short) return advance_short();
  if (!plan_.network) return take_steps();
  bool moved = remaining_ > 1 && take_steps();
  if (plan_.network->progress()) moved = true;
  if (remaining_ == 1 && all_sent()) {
    remaining_ = 0;
    moved = true;
  }
  return moved;
}

bool Run::all_sent() const {
  return std::all_of(plan_.to_hosts.begin(), plan_.to_hosts.end(), [](const auto& s) { return s.to->sent() == s.to->committed(); }) &&
         std::all_of(plan_.from_hosts.begin(), plan_.from_hosts.end(), [](const auto& r) { return r.from->sent() == r.from->credits(); });
}

bool Run::take_steps() {
  bool moved = false;
  const size_t n = plan_.channels.size();
  for (size_t c = 0; c < n; ++c) {
    const CompiledChannel& channel = plan_.channels[c];
    Cursor& cursor = cursors_[c];
    while (cursor.loop != channel.last) {
      const CompiledLoop& loop = plan_.loops[cursor.loop];
      if (!step(loop, plan_.steps[cursor.step], cursor.tile)) break;
      moved = true;
      if (++cursor.step == loop.last) skip_empty(channel, &cursor);
    }
  }
  return moved;
}

int Run::waiting_for() const {
  const auto blocked_on = [&](const CompiledStep& s) {
    for (uint32_t i = s.first_receive; i < s.last_receive; ++i)
      if (!plan_.receives[i].from->ready()) return plan_.receives[i].peer;
    for (uint32_t i = s.first_send; i < s.last_send; ++i)
      if (!plan_.sends[i].to->ready()) return plan_.sends[i].peer;
    return -1;
  };
  if (done()) return -1;
  if (plan_.is_short) return blocked_on(plan_.steps[short_step_]);
  for (size_t c = 0; c < plan_.channels.size(); ++c) {
    if (cursors_[c].loop == plan_.channels[c].last) continue;
    if (const int peer = blocked_on(plan_.steps[cursors_[c].step]); peer >= 0) return peer;
  }
  for (const auto& s : plan_.to_hosts)
    if (s.to->sent() != s.to->committed()) return s.peer;
  return -1;
}

// --- what every step does, whatever the plan ---

inline bool Run::ready(const CompiledStep& s) const {
  const CompiledPlan::Receive* const receives = plan_.receives.data();
  for (uint32_t i = s.first_receive; i != s.last_receive; ++i)
    if (!receives[i].from->ready()) return false;
  const CompiledPlan::Send* const sends = plan_.sends.data();
  for (uint32_t i = s.first_send; i != s.last_send; ++i)
    if (!sends[i].to->ready()) return false;
  return true;
}

inline void Run::check_fingerprints(const CompiledStep& s, uint64_t fingerprint) const {
  const CompiledPlan::Receive* const receives = plan_.receives.data();
  for (uint32_t i = s.first_receive; i != s.last_receive; ++i)
    if (receives[i].from->fingerprint() != fingerprint) [[unlikely]]
      throw FingerprintMismatch{receives[i].peer, fingerprint, receives[i].from->fingerprint()};
}

inline void Run::hand_over(const CompiledStep& s, uint64_t fingerprint) const {
  const CompiledPlan::Send* const sends = plan_.sends.data();
  for (uint32_t i = s.first_send; i != s.last_send; ++i) sends[i].to->commit(fingerprint, sends[i].pack);
  const CompiledPlan::Receive* const receives = plan_.receives.data();
  for (uint32_t i = s.first_receive; i != s.last_receive; ++i) receives[i].from->release();
}

inline void Run::apply(const CompiledStep& s, void* const* at, uint32_t destinations, uint64_t count, uint64_t bytes, uint64_t weighted, uint64_t streamed) const {
  if (s.combines) {
    ReduceArgs args;
    args.sources = at;
    args.nsources = s.sources;
    args.destinations = at + s.sources;
    args.ndestinations = destinations;
    args.count = count;
    args.weighted = weighted;
    args.weight_bits = weight_bits_;
    args.divisor = s.finish ? plan_.divisor : 0;
    args.streamed = streamed;
    plan_.kernel(args);
  } else if (s.sources == 1) {
    // In place a piece may be its own destination, which others read meanwhile: it is left alone, as copy_kernel does.
    if (destinations == 1 && bytes < kShortCopy && at[0] != at[1])
      small_copy<kShortCopy>(static_cast<uint8_t*>(at[1]), static_cast<const uint8_t*>(at[0]), bytes);
    else
      copy_kernel(at + s.sources, destinations, at[0], bytes, streamed);
  }
}

bool Run::advance_short() {
  const CompiledStep* const steps = plan_.steps.data();
  const auto last = static_cast<uint32_t>(plan_.steps.size());
  const uint64_t fingerprint = fingerprints_[0];
  const uint64_t element = plan_.loops[0].element;
  const uint32_t before = short_step_;
  for (; short_step_ != last; ++short_step_) {
    const CompiledStep& s = steps[short_step_];
    if (s.pieces != 0 && s.longest == 0) continue;  // both ends know: nothing is sent
    if (!ready(s)) return short_step_ != before;
    check_fingerprints(s, fingerprint);
    if (s.pieces != 0) {
      const StepPlace* const places = &plan_.places[s.place];
      const uint32_t n = uint32_t{s.sources} + s.destinations;
      const uint64_t bytes = s.longest * element;
      void* at[2 * kMostPlaces];
      uint64_t weighted = 0, streamed = 0;
      for (uint32_t i = 0; i != n; ++i) {
        const StepPlace& p = places[i];
        switch (p.kind) {
          case StepPlace::Kind::local: at[i] = buffers_[p.buffer] + p.offset; break;
          case StepPlace::Kind::receive: at[i] = const_cast<std::byte*>(p.receiver->peek(bytes)); break;
          case StepPlace::Kind::send: at[i] = p.sender->acquire(bytes); break;
          case StepPlace::Kind::window: at[i] = (p.buffer == kInput ? windows_.input : windows_.output)[p.peer] + p.offset; break;
        }
        weighted |= uint64_t{p.raw} << (i & 63);
      }
      if (s.streams & streams_)
        for (uint32_t i = s.sources; i != n; ++i) streamed |= uint64_t{(places[i].streams & streams_) != 0} << (i - s.sources);
      apply(s, at, s.destinations, s.longest, bytes, weighted, streamed);
    }
    hand_over(s, fingerprint);
  }
  remaining_ = 0;
  return true;
}

// Local memory that a step is about to write, and that a network still reads.
bool Run::overwrites_unsent(const CompiledLoop& loop, const CompiledStep& s, uint64_t begin) {
  std::erase_if(*unsent_, [](const Unsent& u) { return u.by->sent() >= u.number; });
  const uint32_t nsrc = s.sources, n = nsrc + s.destinations;
  for (uint32_t j = 0; j < s.pieces && !unsent_->empty(); ++j) {
    const uint64_t length = plan_.lengths[s.length + j];
    if (length <= begin) continue;
    for (uint32_t i = nsrc; i < n; ++i) {
      const StepPlace& p = plan_.places[s.place + i];
      if (p.kind != StepPlace::Kind::local) continue;
      const std::byte* const from = buffers_[p.buffer] + plan_.offsets[s.offset + j * n + i] + begin * loop.element;
      const std::byte* const to = from + std::min(length - begin, plan_.tile) * loop.element;
      for (const Unsent& u : *unsent_)
        if (from < u.end && u.begin < to) return true;
    }
  }
  return false;
}

bool Run::step(const CompiledLoop& loop, const CompiledStep& s, uint64_t tile) {
  const uint64_t begin = tile * plan_.tile;
  // Both ends know the length, so a message of none is not sent. Tokens are, and the first tile where the length could be
  // another one at the other side: they are what it waits for.
  if (s.pieces != 0 && begin >= s.longest && (begin != 0 || !loop.sends_empty)) return true;
  if (!ready(s)) return false;
  if (unsent_ && overwrites_unsent(loop, s, begin)) return false;
  const uint64_t fingerprint = fingerprints_[loop.message < 0 ? 0 : loop.message] ^ s.mark;
  check_fingerprints(s, fingerprint);

  const StepPlace* const places = &plan_.places[s.place];
  const uint32_t nsrc = s.sources, n = nsrc + s.destinations;
  const uint64_t* const lengths = &plan_.lengths[s.length];
  const auto piece = [&](uint32_t j) { return lengths[j] > begin ? std::min(lengths[j] - begin, plan_.tile) : 0; };
  uint64_t message = 0;  // bytes of one slot message: all pieces of this tile
  for (uint32_t j = 0; j < s.pieces; ++j) message += piece(j) * loop.element;
  // Not copied for other hosts.
  const int lies_in = message > kInlineBytes ? s.lies_in : -1;
  const std::byte* lies_at = nullptr;

  uint64_t in_message = 0;  // bytes of the message before this piece
  const uint64_t* offsets = &plan_.offsets[s.offset];
  const uint64_t shift = begin * loop.element;
  for (uint32_t j = 0; j < s.pieces; ++j, offsets += n) {
    const uint64_t length = piece(j);
    if (length == 0) continue;
    void* at[2 * kMostPlaces];
    uint64_t weighted = 0, streamed = 0;
    uint32_t used = 0;
    for (uint32_t i = 0; i < n; ++i) {
      const StepPlace& p = places[i];
      void* here = nullptr;
      switch (p.kind) {
        case StepPlace::Kind::local: here = buffers_[p.buffer] + offsets[i] + shift; break;
        case StepPlace::Kind::receive: here = const_cast<std::byte*>(p.receiver->peek(message)) + in_message; break;
        case StepPlace::Kind::send: here = p.sender->acquire(message) + in_message; break;
        case StepPlace::Kind::window: here = (p.buffer == kInput ? windows_.input : windows_.output)[p.peer] + offsets[i] + shift; break;
      }
      if (lies_in >= 0) [[unlikely]] {
        if (static_cast<int>(i) == lies_in) lies_at = static_cast<const std::byte*>(here);
        if (p.sender && p.sender->wired()) continue;
      }
      at[used] = here;
      weighted |= uint64_t{p.raw} << (used & 63);
      if (i >= nsrc) streamed |= uint64_t{(p.streams & streams_) != 0} << (used - nsrc);
      ++used;
    }
    if (used > nsrc) apply(s, at, used - nsrc, length, length * loop.element, weighted, streamed);
    in_message += length * loop.element;
  }
  if (lies_at) [[unlikely]] {
    if (!unsent_) unsent_ = std::make_unique<std::vector<Unsent>>();
    for (uint32_t i = s.first_send; i != s.last_send; ++i)
      if (SlotSender& to = *plan_.sends[i].to; to.wired()) {
        to.send_from(lies_at);
        unsent_->push_back({lies_at, lies_at + message, &to, to.committed() + 1});
      }
  }
  hand_over(s, fingerprint);
  if (plan_.network && message >= kLookEvery) plan_.network->progress();
  return true;
}

}  // namespace muster
