#include "transports/wire_end.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"
#include "base/math.h"
#include "transports/wired_network.h"

namespace muster {

// Rings begin small and grow (ByteRing): 64 KiB hold the small ones and, behind them, any message that fits in an eighth.
size_t WireEnd::ring_bytes_for(size_t slot_bytes) { return align_up(std::max<size_t>(kWireMessages * slot_bytes, 64 << 10), 4096); }

WireEnd::WireEnd(WiredNetwork& network, Way way, const WireName& name)
    : network_(network), way_(way), name_(name), ring_bytes_(ring_bytes_for(name.slot_bytes)) {
  void* const p = mmap(nullptr, ring_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    fail_errno(errno, fmt::format("mapping {} bytes for a connection to another host", ring_bytes_),
               "Check the limit on address space (ulimit -v), or lower MUSTER_SLOT_BYTES");
  ring_ = static_cast<std::byte*>(p);
  if (way == Way::out)
    sender_.emplace(&lines_, ring_, name.slot_bytes, ring_bytes_, &nobody_, this);
  else
    receiver_.emplace(&lines_, ring_, name.slot_bytes, ring_bytes_, &nobody_, this);
}

WireEnd::~WireEnd() {
  registration.reset();
  munmap(ring_, ring_bytes_);
}

Network::Memory WireEnd::memory() const {
  if (registration) return {.kept = sizeof *this + ring_bytes_};
  return {.kept = sizeof *this, .rings = used(), .released = released_};
}

// An adapter would go on writing to the pages that it knows, so these stay.
void WireEnd::release() noexcept {
  if (registration || used() == 0 || madvise(ring_, ring_bytes_, MADV_DONTNEED) != 0) return;
  released_ += used();
  used_from_ = SIZE_MAX;
  used_to_ = 0;
}

void WireEnd::send(const SlotLine& line, size_t offset, const std::byte* from, size_t bytes) noexcept {
  const uint64_t number = line.sequence[0].load(std::memory_order_relaxed) / 2;
  WireOp& op = messages_[(number - 1) % kSlots];
  const std::lock_guard lock(network_.mutex_);
  op.header = network_.header_to(name_.peer, WireKind::message, name_);
  op.header.bytes = static_cast<uint32_t>(bytes);
  op.header.number = number;
  op.header.offset = offset;
  op.header.fingerprint = line.fingerprint[0];
  std::copy(std::begin(line.payload), std::end(line.payload), op.header.inlined);
  op.payload = bytes ? from : nullptr;
  if (bytes > 0 && from == ring_ + offset) uses(offset, bytes);  // else it lies in the user's own memory
  op.peer = name_.peer;
  op.end = this;
  sent_ = number;
  network_.post_op(op);
}

void WireEnd::give_credit(const CreditLine& credit) noexcept {
  const std::lock_guard lock(network_.mutex_);
  ++credits_;
  if (credit_.posted) {  // it will say what is true when it is its turn
    credit_waits_ = true;
    return;
  }
  credit_.header = network_.header_to(name_.peer, WireKind::credit, name_);
  credit_.header.consumed = credit.consumed.load(std::memory_order_relaxed);
  credit_.header.freed = credit.freed.load(std::memory_order_relaxed);
  credit_.peer = name_.peer;
  credit_.end = this;
  network_.post_op(credit_);
}

}  // namespace muster
