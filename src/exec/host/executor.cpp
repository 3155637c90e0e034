#include "exec/host/executor.h"

#include <algorithm>

namespace muster {

Run::Run(const CompiledPlan& plan, std::byte* const* buffers, const uint64_t* fingerprints, uint64_t weight_bits, WindowTable windows)
    : plan_(plan), buffers_(buffers), fingerprints_(fingerprints), weight_bits_(weight_bits), windows_(windows) {
  const size_t n = plan.channels.size();
  if (n > kSmallChannels) {
    many_ = std::make_unique<Cursor[]>(n);
    cursors_ = many_.get();
  }
  for (size_t c = 0; c < n; ++c) {
    const CompiledChannel& channel = plan.channels[c];
    if (channel.first == channel.last) continue;
    cursors_[c].loop = channel.first;
    cursors_[c].step = plan.loops[channel.first].first;
    ++remaining_;
    skip_empty(channel, &cursors_[c]);
  }
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
  for (size_t c = 0; c < plan_.channels.size(); ++c) {
    if (cursors_[c].loop == plan_.channels[c].last) continue;
    const CompiledStep& s = plan_.steps[cursors_[c].step];
    for (uint32_t i = 0; i < uint32_t{s.sources} + s.destinations; ++i) {
      const Place& p = plan_.places[s.place + i];
      if (p.kind == Place::Kind::receive && !p.receiver->ready()) return p.peer;
      if (p.kind == Place::Kind::send && !p.sender->ready()) return p.peer;
    }
  }
  return -1;
}

bool Run::step(const CompiledLoop& loop, const CompiledStep& s, uint64_t tile) {
  const Place* const places = &plan_.places[s.place];
  const uint32_t nsrc = s.sources, n = nsrc + s.destinations;
  const uint64_t begin = tile * plan_.tile;
  // Both ends know the length, so a message of none is not sent. Tokens and the first tile of a point-to-point message
  // are: they are what the other side waits for.
  if (s.pieces != 0 && begin >= s.longest && loop.message < 0) return true;

  for (uint32_t i = 0; i < nsrc; ++i)
    if (places[i].kind == Place::Kind::receive && !places[i].receiver->ready()) return false;
  for (uint32_t i = nsrc; i < n; ++i)
    if (places[i].kind == Place::Kind::send && !places[i].sender->ready()) return false;

  const uint64_t fingerprint = fingerprints_[loop.message < 0 ? 0 : loop.message];
  for (uint32_t i = 0; i < nsrc; ++i)
    if (places[i].kind == Place::Kind::receive && places[i].receiver->fingerprint() != fingerprint) [[unlikely]]
      throw FingerprintMismatch{places[i].peer, fingerprint, places[i].receiver->fingerprint()};

  if (s.pieces != 0) {
    const uint64_t* const lengths = &plan_.lengths[s.length];
    const uint64_t* offsets = &plan_.offsets[s.offset];
    uint64_t message = 0;  // bytes of one slot message: all pieces of this tile
    for (uint32_t j = 0; j < s.pieces; ++j)
      if (lengths[j] > begin) message += std::min(lengths[j] - begin, plan_.tile) * loop.element;

    uint64_t in_message = 0;  // bytes of the message before this piece
    for (uint32_t j = 0; j < s.pieces; ++j, offsets += n) {
      const uint64_t length = lengths[j] > begin ? std::min(lengths[j] - begin, plan_.tile) : 0;
      if (length == 0) continue;
      const uint64_t shift = begin * loop.element;
      void* at[128];  // compile() admits 64 sources and 64 destinations
      uint64_t weighted = 0, streamed = 0;
      for (uint32_t i = 0; i < n; ++i) {
        const Place& p = places[i];
        switch (p.kind) {
          case Place::Kind::local:
            at[i] = buffers_[p.buffer] + offsets[i] + shift;
            if (i >= nsrc && plan_.choice.streamed && p.buffer == kOutput) streamed |= uint64_t{1} << (i - nsrc);
            if (p.raw) weighted |= uint64_t{1} << i;
            break;
          case Place::Kind::receive: at[i] = const_cast<std::byte*>(p.receiver->peek(message)) + in_message; break;
          case Place::Kind::send: at[i] = p.sender->acquire(message) + in_message; break;
          case Place::Kind::window:
            at[i] = (p.buffer == kInput ? windows_.input : windows_.output)[p.peer] + offsets[i] + shift;
            if (i >= nsrc && plan_.choice.streamed) streamed |= uint64_t{1} << (i - nsrc);
            break;
        }
      }
      if (s.combines) {
        ReduceArgs args;
        args.sources = at;
        args.nsources = nsrc;
        args.destinations = at + nsrc;
        args.ndestinations = s.destinations;
        args.count = length;
        args.weighted = weighted;
        args.weight_bits = weight_bits_;
        args.divisor = s.finish ? plan_.divisor : 0;
        args.streamed = streamed;
        plan_.kernel(args);
      } else if (nsrc == 1) {
        copy_kernel(at + nsrc, s.destinations, at[0], length * loop.element, streamed);
      }
      in_message += length * loop.element;
    }
  }

  for (uint32_t i = nsrc; i < n; ++i)
    if (places[i].kind == Place::Kind::send) places[i].sender->commit(fingerprint);
  for (uint32_t i = 0; i < nsrc; ++i)
    if (places[i].kind == Place::Kind::receive) places[i].receiver->release();
  return true;
}

}  // namespace muster
