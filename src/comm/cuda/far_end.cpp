#include "comm/cuda/far_end.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace muster::cuda {
namespace {

// What the network carries for a message: one that leaves room for its length in the control line, or a long
// one, of which there is more than a line has (SlotSender::aside).
bool is_short(uint64_t bytes) { return bytes <= kHalfBytes; }
size_t carried(uint64_t bytes) {
  return is_short(bytes) ? kHalfBytes : std::max<size_t>(bytes, kInlineBytes + 1);
}

}  // namespace

bool FarSender::move() {
  bool moved = false;
  for (const uint64_t posted = box_.posted(); given_ < posted && network_.ready(); ++given_) {
    send(given_);
    moved = true;
  }
  if (const uint64_t sent = network_.sent(); sent != freed_) {
    freed_ = sent;
    box_.take(freed_);
    moved = true;
  }
  return moved;
}

void FarSender::send(uint64_t n) {
  const uint64_t bytes = box_.size(n);
  std::byte* const to = network_.acquire(carried(bytes));
  if (is_short(bytes))
    std::memcpy(to, box_.slot(n), bytes);
  else
    network_.send_from(box_.slot(n));
  std::memcpy(network_.aside(), &bytes, sizeof bytes);
  network_.commit(box_.fingerprint(n), false);
}

bool FarReceiver::move() {
  bool moved = false;
  for (; came_ - box_.taken() < box_.slots() && network_.ready(); ++came_) {
    receive();
    moved = true;
  }
  return moved;
}

void FarReceiver::receive() {
  uint64_t bytes = 0;
  std::memcpy(&bytes, network_.aside(), sizeof bytes);
  if (bytes > box_.slot_bytes())
    fail(Result::internal_error, "a message of {} bytes came from another host's GPU; a slot has {}", bytes,
         box_.slot_bytes());
  std::memcpy(box_.slot(came_), network_.peek(carried(bytes)), bytes);
  box_.set_fingerprint(came_, network_.fingerprint());
  box_.post(came_ + 1);
  network_.release();
}

}  // namespace muster::cuda
