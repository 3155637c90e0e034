// A connection: a FIFO of slots in one direction between two ranks, as the executors see it.
//
// Each slot is one control line: sequence, fingerprint, and the message itself if it fits. Longer messages lie in a ring
// of bytes, one behind the other, so that whatever their size the ring is gone round before its memory is used again:
// a line that still lies in the other core's cache costs several times as much to write as one that doesn't. The sender
// writes lines, the receiver writes the credit line; every line has one writer.
//
// A sender that only sends (a broadcast's root) runs ahead, and then the lines that pass between the cores are what a
// message costs. So two of its short messages share a line: the first says that the next one is in its second half.
// Where messages answer each other each has a line of its own, which the sender takes back while it waits.
// Whatever the transport, executors work on this memory. Between ranks of one host it is shared. A connection to another
// host has it at both ends, and a Wire takes what one end publishes to the other: a message's payload to the same place of
// the other ring, since both ends count alike, then its line; and the credit line back.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/math.h"

namespace muster {

// Takes a line away from the other cores before it is written. Compilers for the plain x86-64 only fetch a shared copy
// for __builtin_prefetch(p, 1); prefetchw does nothing on processors that don't know it.
inline void prefetch_to_write(const void* p) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 1);
#endif
}

inline constexpr uint32_t kSlots = 32;            // lines a connection has; a power of two
inline constexpr uint32_t kHalves = 2 * kSlots;   // what messages are counted in: halves of lines
// Share of all halves, and of the ring of bytes, after which credit is given: were it one by one, a sender that is ahead
// would take the credit line away from the receiver with every look. A sender that waits has nearly all halves or bytes
// under way, so the next credit always comes.
inline constexpr uint32_t kCreditShare = 4;
inline constexpr uint32_t kCreditEvery = kHalves / kCreditShare;
inline constexpr size_t kInlineBytes = 32;        // a message up to this size travels in the control line alone
inline constexpr size_t kHalfBytes = 16;          // and up to this size two of them may share it
inline constexpr uint32_t kMostHalves = 3;        // that one message takes
// Lines fetched ahead, where the sender is: one line at a time a message waits for the whole way between the cores.
// Three gave 0.136 us per 8-byte broadcast where one gave 0.161 (cores that share no cache).
inline constexpr uint32_t kFetchAhead = 3;
inline constexpr uint32_t kStreak = 16;           // messages found ready in a row that say so

struct alignas(kCacheLine) SlotLine {
  // By half, the number of the message that begins there, from 1, times 2; odd: the next message begins in the second
  // half of this line. Published last.
  std::atomic<uint64_t> sequence[2];
  uint64_t fingerprint[2];           // which call the message belongs to
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(SlotLine) == kCacheLine);

// Where in the ring of lines a message is; both ends count alike.
class LineCursor {
 public:
  uint64_t half() const { return half_; }
  uint32_t side() const { return half_ & 1; }
  uint32_t line() const { return half_ / 2 % kSlots; }
  // Line and offset of the payload of a message of up to kInlineBytes: in its own half, or from its line's middle on; one
  // that begins in the second half but doesn't fit there has the next line's.
  std::byte* payload(SlotLine* slots, size_t bytes) {
    if (side() == 0) [[likely]] return slots[line()].payload;
    if (bytes <= kHalfBytes) return slots[line()].payload + kHalfBytes;
    spills_ = true;
    return slots[(line() + 1) % kSlots].payload;
  }
  // Past the message; `packed`: the next one is in the second half of this one's line.
  void advance(bool packed) {
    if (packed) {
      ++half_;
      return;
    }
    half_ += 2 - side() + (spills_ ? 2 : 0);
    spills_ = false;
  }

 private:
  uint64_t half_ = 0;
  bool spills_ = false;
};

struct alignas(kCacheLine) CreditLine {
  std::atomic<uint64_t> consumed;  // halves that the receiver is done with
  std::atomic<uint64_t> freed;     // the same of the ring of bytes, as ByteRing::end counts
};

// What both ends of a connection map.
struct ConnectionLines {
  CreditLine credit;
  SlotLine slots[kSlots];
};

// Rings a sleeping peer; `sleeping` is 0 while it polls (the usual case, one load of a shared line).
struct Doorbell {
  std::atomic<uint32_t> sleeping;  // nonzero: its owner waits on this word with futex
  void ring() {
    std::atomic_signal_fence(std::memory_order_seq_cst);  // what was published stays before the look; membarrier does the rest
    if (sleeping.load(std::memory_order_relaxed) != 0) [[unlikely]] wake();
  }
  void wake();
};

// What a connection's end hands to its peer on another host, where no memory is shared. Of that end's thread, but done().
class Wire {
 public:
  // The sending end has published `line`. `bytes` of its message, at `from`, belong at `offset` of the ring; 0: the line has
  // all of it. `from` isn't written until done() counts the message.
  virtual void send(const SlotLine& line, size_t offset, const std::byte* from, size_t bytes) noexcept = 0;
  // The receiving end has written its credit line.
  virtual void give_credit(const CreditLine& credit) noexcept = 0;
  // Messages, or credits, from the first on, that the network has taken: their memory is no more read.
  uint64_t done() const { return done_.load(std::memory_order_acquire); }

 protected:
  ~Wire() = default;
  std::atomic<uint64_t> done_{0};
};

// Where the messages of one connection lie in its ring of bytes; both ends count alike. A message that would reach past
// the end begins at 0 again.
//
// The ring is as large as the longest message so far asks for, so that a connection takes little memory until long ones
// come. It grows without a pause: the next message lies behind what the ring was, and when the larger ring begins again,
// what is still at its beginning counts like the last lap of any ring.
class ByteRing {
 public:
  struct Extent {
    size_t largest, bytes;  // bytes of a message, and of the ring that has messages up to it
    // Bytes gone round after which it grows to its full size although no longer message came: a connection as busy as
    // that gains from its memory being used again later. All-reduce of two ranks that share no cache but the last: 4 KiB
    // 1.29 us in a ring of 48 KiB, 1.05 in the full one; 1 KiB 0.39 us in one of 8 KiB, 0.41 in the full one.
    uint64_t busy;
  };
  static constexpr uint64_t kNever = UINT64_MAX;
  // What a connection for messages up to `largest` has while none was longer than `message`. The largest has room for as
  // many messages as there are lines, and a gap at the end.
  static constexpr Extent extent(size_t message, size_t largest) { return extent(message, largest, bytes_for(largest)); }
  static constexpr Extent extent(size_t message, size_t largest, size_t full) {
    for (const Extent& e : kFirst)
      if (message <= e.largest && e.largest < largest) return e;
    return {largest, full, kNever};
  }
  static constexpr size_t bytes_for(size_t largest) { return (kSlots + 1) * largest; }

  // `full`: bytes that it has at last.
  ByteRing(size_t largest, size_t full) : largest_(largest), full_(full) {}

  bool holds(size_t bytes) const { return bytes <= extent_.largest; }
  bool fits(size_t bytes) const { return holds(bytes) && at_ + bytes <= extent_.bytes; }
  bool busy() const { return laps_ >= extent_.busy; }
  size_t full_bytes() const { return full_; }
  // When a message does not fit: on in a larger ring, one for messages of `bytes`, or in the full one; or round again.
  void grow(size_t bytes) {
    at_ = next_ = extent_.bytes;
    extent_ = extent(bytes, largest_, full_);
  }
  void grow_full() { grow(largest_); }
  void wrap() {
    laps_ += extent_.bytes;
    at_ = next_ = 0;
  }
  // Of a message that fits. May be asked several times for one message.
  size_t place(size_t bytes) {
    next_ = at_ + align_up(bytes, kCacheLine);
    return at_;
  }
  void advance() { at_ = next_; }
  size_t at() const { return at_; }  // of the message that was placed last

  size_t bytes() const { return extent_.bytes; }
  // Bytes gone round, gaps among them, up to the end of the message that was placed last.
  uint64_t end() const { return laps_ + next_; }
  // Bytes of it that may be under way when one more message is to have room: it, and a gap before it, are less than two.
  size_t bytes_before_one_more() const { return extent_.bytes - 2 * extent_.largest; }

 private:
  static constexpr Extent kFirst[] = {{1 << 10, 8 << 10, kNever}, {8 << 10, 48 << 10, 16 << 20}};

  size_t largest_, full_;
  Extent extent_{0, 0, kNever};
  size_t at_ = 0, next_ = 0;
  uint64_t laps_ = 0;  // bytes gone round before the ring's current beginning
};

// The sending end. One thread.
class SlotSender {
 public:
  // Of `data` as many bytes are to be usable as ByteRing::extent says for the longest message that is sent. `reserve`, for a
  // ring that is busy, makes so many usable; false: they can't be had.
  SlotSender(ConnectionLines* lines, std::byte* data, size_t slot_bytes, Doorbell* receiver, std::function<bool(size_t)> reserve)
      : lines_(lines), data_(data), ring_(slot_bytes, ByteRing::bytes_for(slot_bytes)), receiver_(receiver), reserve_(std::move(reserve)) {}
  // To another host. All `ring_bytes` of `data` are usable; messages of it are never packed.
  SlotSender(ConnectionLines* lines, std::byte* data, size_t slot_bytes, size_t ring_bytes, Doorbell* receiver, Wire* wire)
      : lines_(lines), data_(data), ring_(slot_bytes, ring_bytes), wire_(wire), receiver_(receiver), reserve_([](size_t) { return true; }) {}

  bool ready() {
    if (cursor_.half() + kMostHalves <= limit_) [[likely]] return true;
    uint64_t consumed = lines_->credit.consumed.load(std::memory_order_acquire);
    if (wire_) consumed = std::min(consumed, 2 * wire_->done());
    freed_ = lines_->credit.freed.load(std::memory_order_acquire);
    limit_ = has_room() ? consumed + kHalves : 0;
    return cursor_.half() + kMostHalves <= limit_;
  }
  // Where the next message of `bytes` is to be written; ready() first.
  std::byte* acquire(size_t bytes) {
    if (bytes <= kInlineBytes) return cursor_.payload(lines_->slots, bytes);
    if (!ring_.fits(bytes)) [[unlikely]] turn(bytes);
    std::byte* const at = data_ + ring_.place(bytes);
    if (!has_room()) limit_ = 0;
    bytes_ = bytes;
    return at;
  }
  // To another host, a message of more than kInlineBytes, after acquire(): it isn't written there, it lies in `memory`, which
  // must keep it until sent() counts it.
  void send_from(const std::byte* memory) { from_ = memory; }
  bool wired() const { return wire_ != nullptr; }
  // To another host, after acquire(): kHalfBytes that travel beside a message of up to kHalfBytes or of more than
  // kInlineBytes, in its line.
  std::byte* aside() { return lines_->slots[cursor_.line()].payload + kHalfBytes; }
  // To another host: messages committed, and how many of them, from the first on, the network has taken, their memory free.
  uint64_t committed() const { return next_ / 2 - 1; }
  uint64_t sent() const { return wire_->done(); }
  // `pack`: the message has at most kHalfBytes, and the next one is likely to follow without an answer to this one.
  void commit(uint64_t fingerprint, bool pack) {
    SlotLine& line = lines_->slots[cursor_.line()];
    const uint32_t side = cursor_.side();
    pack = pack && side == 0;
    line.fingerprint[side] = fingerprint;
    line.sequence[side].store(next_ | uint64_t{pack}, std::memory_order_release);
    if (wire_) [[unlikely]] send(line);
    next_ += 2;
    cursor_.advance(pack);
    // The receiver is long done with the next lines: take them back now rather than when a message waits for them.
    prefetch_to_write(&lines_->slots[(cursor_.line() + kFetchAhead) % kSlots]);
    ring_.advance();
    receiver_->ring();
  }

 private:
  // Where a ring could go round or grow the sender decides. It tells in the message's line, which has no payload.
  [[gnu::noinline]] void turn(size_t bytes) {
    if (!ring_.holds(bytes)) return ring_.grow(bytes);
    const bool grows = ring_.busy() && may_grow_ && (may_grow_ = reserve_(ring_.full_bytes()));
    *cursor_.payload(lines_->slots, 1) = std::byte{grows};
    grows ? ring_.grow_full() : ring_.wrap();
  }
  [[gnu::noinline]] void send(const SlotLine& line) {
    wire_->send(line, ring_.at(), from_ ? from_ : data_ + ring_.at(), bytes_);
    from_ = nullptr;
    bytes_ = 0;
  }
  // For one more message in the ring, whatever its size.
  bool has_room() const { return ring_.end() <= freed_ + ring_.bytes_before_one_more(); }

  ConnectionLines* lines_;
  std::byte* data_;
  ByteRing ring_;
  Wire* wire_ = nullptr;  // null: the receiver maps this memory
  const std::byte* from_ = nullptr;  // to another host: where the message is, if not in the ring
  size_t bytes_ = 0;                 // of it in the ring
  Doorbell* receiver_;
  std::function<bool(size_t)> reserve_;
  bool may_grow_ = true;      // false: it was refused memory once
  LineCursor cursor_;
  uint64_t next_ = 2;         // number of the next message, times 2
  uint64_t limit_ = kHalves;  // halves that may be used, by the credit last seen; 0: ask for credit
  uint64_t freed_ = 0;        // how far the ring is free again, by the same
};

// The receiving end. One thread.
class SlotReceiver {
 public:
  SlotReceiver(ConnectionLines* lines, const std::byte* data, size_t slot_bytes, Doorbell* sender)
      : lines_(lines), data_(data), ring_(slot_bytes, ByteRing::bytes_for(slot_bytes)), sender_(sender) {}
  // From another host.
  SlotReceiver(ConnectionLines* lines, const std::byte* data, size_t slot_bytes, size_t ring_bytes, Doorbell* sender, Wire* wire)
      : lines_(lines), data_(data), ring_(slot_bytes, ring_bytes), sender_(sender), wire_(wire) {}

  bool ready() {
    word_ = line().sequence[cursor_.side()].load(std::memory_order_acquire);
    if ((word_ & ~uint64_t{1}) == next_) return true;
    waited_ = true;
    return false;
  }
  uint64_t fingerprint() const { return line().fingerprint[cursor_.side()]; }
  const std::byte* peek(size_t bytes) {
    if (bytes <= kInlineBytes) return cursor_.payload(lines_->slots, bytes);
    if (!ring_.fits(bytes)) [[unlikely]] turn(bytes);
    const std::byte* const at = data_ + ring_.place(bytes);
    if (ring_.end() - freed_ >= ring_.bytes() / kCreditShare) credit_at_ = 0;
    return at;
  }
  void release() {
    cursor_.advance((word_ & 1) != 0);
    ring_.advance();
    if (cursor_.half() >= credit_at_) give_credit();
    next_ += 2;
    // A message that was there at the first look says that the sender is ahead: fetch its next line meanwhile. When it
    // isn't, fetching the line early would only take it away from the sender again.
    streak_ = waited_ ? 0 : streak_ + 1;
    if (streak_ >= kStreak)
      __builtin_prefetch(&lines_->slots[(cursor_.line() + kFetchAhead) % kSlots]);
    else if (streak_ > 0)
      __builtin_prefetch(&line());
    waited_ = false;
  }
  bool wired() const { return wire_ != nullptr; }
  // From another host, of the next message, also before peek(): what its sender has put aside.
  const std::byte* aside() const { return line().payload + kHalfBytes; }
  // From another host: credits given, and how many of them the network has taken.
  uint64_t credits() const { return credits_; }
  uint64_t sent() const { return wire_->done(); }

 private:
  const SlotLine& line() const { return lines_->slots[cursor_.line()]; }
  [[gnu::noinline]] void turn(size_t bytes) {
    if (!ring_.holds(bytes)) return ring_.grow(bytes);
    *cursor_.payload(lines_->slots, 1) != std::byte{} ? ring_.grow_full() : ring_.wrap();
  }
  void give_credit() {
    credit_at_ = (cursor_.half() / kCreditEvery + 1) * kCreditEvery;
    freed_ = ring_.end();
    lines_->credit.freed.store(freed_, std::memory_order_release);
    lines_->credit.consumed.store(cursor_.half(), std::memory_order_release);
    if (wire_) {
      ++credits_;
      wire_->give_credit(lines_->credit);
    }
    sender_->ring();
  }

  ConnectionLines* lines_;
  const std::byte* data_;
  ByteRing ring_;
  Doorbell* sender_;
  Wire* wire_ = nullptr;  // null: the sender maps this memory
  uint64_t credits_ = 0;
  LineCursor cursor_;
  uint64_t next_ = 2;    // number of the next message, times 2
  uint64_t word_ = 0;    // its sequence word, as last read
  uint64_t credit_at_ = kCreditEvery;  // half from which on credit is given; 0: with this message
  uint64_t freed_ = 0;                 // of the ring of bytes, by the credit last given
  bool waited_ = false;  // for the message in question
  uint32_t streak_ = 0;  // messages in a row that were there at the first look
};

}  // namespace muster
