#include "comm/cuda/far_end.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace muster::cuda {
namespace {

// What the network carries for a message: one that leaves room for what goes beside it in the control line,
// or a long one, of which there is more than a line has (SlotSender::aside). Of a short one that no processor
// of this host reads, more of its slot than its own.
bool is_short(uint64_t carried) { return carried <= kHalfBytes; }
uint64_t carried_for(uint64_t bytes, bool on_gpu) {
  return bytes <= kHalfBytes && !on_gpu ? kHalfBytes : std::max<uint64_t>(bytes, kInlineBytes + 1);
}

struct Beside {
  uint64_t bytes, carried;
};
static_assert(sizeof(Beside) <= kHalfBytes);

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
  const Beside beside{bytes, carried_for(bytes, !box_.gpu_slots().empty())};
  std::byte* const to = network_.acquire(beside.carried);
  if (is_short(beside.carried))
    std::memcpy(to, box_.slot(n), bytes);
  else
    network_.send_from(box_.slot(n));
  std::memcpy(network_.aside(), &beside, sizeof beside);
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
  Beside beside{};
  std::memcpy(&beside, network_.aside(), sizeof beside);
  const auto [bytes, carried] = beside;
  if (bytes > box_.slot_bytes() ||
      (carried != carried_for(bytes, false) && carried != carried_for(bytes, true)))
    fail(Result::internal_error,
         "a message of {} bytes, carried as {}, came from another host's GPU; a slot has {}", bytes, carried,
         box_.slot_bytes());
  std::memcpy(box_.slot(came_), network_.peek(carried), bytes);
  box_.set_fingerprint(came_, network_.fingerprint());
  box_.post(came_ + 1);
  network_.release();
}

}  // namespace muster::cuda
