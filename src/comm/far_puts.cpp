#include "comm/far_puts.h"

#include <algorithm>
#include <cstring>

namespace muster {
namespace {

constexpr uint64_t kPutFingerprint = 0x50555450555450ULL;  // nothing else has this lane
constexpr int kMostTaken = 16;                             // messages of one rank at a time

}  // namespace

FarPuts::FarPuts(Network& network, const Published& ranks, Connections connections)
    : network_(network), ranks_(ranks), at_(std::move(connections)) {}

void FarPuts::open() {
  const std::lock_guard lock(mutex_);
  if (!sources_.empty()) return;
  std::vector<Source> sources;
  for (int r = 0; r < static_cast<int>(at_.ranks.size()); ++r)
    if (!ranks_.is_here(r)) sources.push_back({r, &network_.receiver(wire(r), at_.bell)});
  sources_ = std::move(sources);
}

uint32_t FarPuts::add_window(std::byte* base, size_t bytes) {
  open();
  const std::lock_guard lock(mutex_);
  parts_[windows_] = {base, bytes};
  return windows_++;
}

void FarPuts::remove_window(uint32_t number) {
  const std::lock_guard lock(mutex_);
  parts_.erase(number);
}

bool FarPuts::send(const Put& put, uint64_t* sent) {
  SlotSender& to = network_.sender(wire(put.peer), at_.bell);
  bool moved = false;
  if (*sent == 0) {
    if (!to.ready()) return false;
    const Header h{put.offset, put.bytes, put.window, put.signal};
    std::memcpy(to.acquire(sizeof h), &h, sizeof h);
    to.commit(kPutFingerprint, false);
    *sent = 1;
    moved = true;
  }
  // One more than the bytes: the header.
  while (*sent <= put.bytes && to.ready()) {
    const uint64_t at = *sent - 1;
    const size_t n = std::min<uint64_t>(at_.slot_bytes, put.bytes - at);
    std::memcpy(to.acquire(n), put.source + at, n);
    to.commit(kPutFingerprint, false);
    *sent += n;
    moved = true;
  }
  // It needs no more help of this rank, and that is its end.
  if (*sent == put.bytes + 1 && to.sent() == to.committed()) {
    ++*sent;
    moved = true;
  }
  return moved;
}

uint64_t FarPuts::signals(int from, uint32_t signal) const {
  const std::lock_guard lock(mutex_);
  const auto at = signals_.find({from, signal});
  return at == signals_.end() ? 0 : at->second;
}

void FarPuts::take_signals(int from, uint32_t signal, uint64_t n) {
  const std::lock_guard lock(mutex_);
  signals_[{from, signal}] -= n;
}

bool FarPuts::take_in() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;  // somebody else is at it
  bool moved = false;
  for (Source& s : sources_)
    for (int i = 0; i < kMostTaken && s.receiver->ready(); ++i) {
      take(s);
      moved = true;
    }
  return moved;
}

void FarPuts::take(Source& s) {
  if (!s.in_put) {
    std::memcpy(&s.put, s.receiver->peek(sizeof s.put), sizeof s.put);
    s.receiver->release();
    s.in_put = true;
    s.taken = 0;
    if (s.put.bytes == 0) end_put(s);
    return;
  }
  const size_t n = std::min<uint64_t>(at_.slot_bytes, s.put.bytes - s.taken);
  const std::byte* const data = s.receiver->peek(n);
  // A window that was thrown away here takes nothing any more; the signal counts all the same.
  if (const auto part = parts_.find(s.put.window); part != parts_.end() && s.put.offset <= part->second.bytes &&
                                                   s.put.bytes <= part->second.bytes - s.put.offset)
    std::memcpy(part->second.base + s.put.offset + s.taken, data, n);
  s.receiver->release();
  s.taken += n;
  if (s.taken == s.put.bytes) end_put(s);
}

void FarPuts::end_put(Source& s) {
  s.in_put = false;
  ++signals_[{s.rank, s.put.signal}];
  at_.bell->ring();
}

}  // namespace muster
