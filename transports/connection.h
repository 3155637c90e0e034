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
// Whatever the transport, executors work on this memory; shared memory is the memory itself, and a network transport
// moves it when its progress() is called.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

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
// Halves after which credit is given: were it one by one, a sender that is ahead would take the credit line away from
// the receiver with every look. A sender that waits has nearly all halves under way, so the next credit always comes.
inline constexpr uint32_t kCreditEvery = kHalves / 4;
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

// Where the messages of one connection lie in its ring of bytes; both ends count alike. kSlots messages of the largest
// size and a gap at the end always fit, so a message never meets one that the receiver still holds.
class ByteRing {
 public:
  static constexpr size_t bytes_for(size_t largest_message) { return (kSlots + 1) * largest_message; }
  explicit ByteRing(size_t largest_message) : size_(bytes_for(largest_message)) {}
  size_t place(size_t bytes) {
    const size_t at = at_ + bytes > size_ ? 0 : at_;
    next_ = at + align_up(bytes, kCacheLine);
    return at;
  }
  void advance() { at_ = next_; }

 private:
  size_t size_, at_ = 0, next_ = 0;
};

// The sending end. One thread.
class SlotSender {
 public:
  SlotSender(ConnectionLines* lines, std::byte* data, size_t slot_bytes, Doorbell* receiver)
      : lines_(lines), data_(data), ring_(slot_bytes), receiver_(receiver) {}

  bool ready() {
    if (cursor_.half() + kMostHalves <= limit_) [[likely]] return true;
    limit_ = lines_->credit.consumed.load(std::memory_order_acquire) + kHalves;
    return cursor_.half() + kMostHalves <= limit_;
  }
  // Where the next message of `bytes` is to be written; ready() first.
  std::byte* acquire(size_t bytes) {
    return bytes <= kInlineBytes ? cursor_.payload(lines_->slots, bytes) : data_ + ring_.place(bytes);
  }
  // `pack`: the message has at most kHalfBytes, and the next one is likely to follow without an answer to this one.
  void commit(uint64_t fingerprint, bool pack) {
    SlotLine& line = lines_->slots[cursor_.line()];
    const uint32_t side = cursor_.side();
    pack = pack && side == 0;
    line.fingerprint[side] = fingerprint;
    line.sequence[side].store(next_ | uint64_t{pack}, std::memory_order_release);
    next_ += 2;
    cursor_.advance(pack);
    // The receiver is long done with the next lines: take them back now rather than when a message waits for them.
    prefetch_to_write(&lines_->slots[(cursor_.line() + kFetchAhead) % kSlots]);
    ring_.advance();
    receiver_->ring();
  }

 private:
  ConnectionLines* lines_;
  std::byte* data_;
  ByteRing ring_;
  Doorbell* receiver_;
  LineCursor cursor_;
  uint64_t next_ = 2;         // number of the next message, times 2
  uint64_t limit_ = kHalves;  // halves that may be used, by the credit last seen
};

// The receiving end. One thread.
class SlotReceiver {
 public:
  SlotReceiver(ConnectionLines* lines, const std::byte* data, size_t slot_bytes, Doorbell* sender)
      : lines_(lines), data_(data), ring_(slot_bytes), sender_(sender) {}

  bool ready() {
    word_ = line().sequence[cursor_.side()].load(std::memory_order_acquire);
    if ((word_ & ~uint64_t{1}) == next_) return true;
    waited_ = true;
    return false;
  }
  uint64_t fingerprint() const { return line().fingerprint[cursor_.side()]; }
  const std::byte* peek(size_t bytes) {
    return bytes <= kInlineBytes ? cursor_.payload(lines_->slots, bytes) : data_ + ring_.place(bytes);
  }
  void release() {
    const uint64_t before = cursor_.half();
    cursor_.advance((word_ & 1) != 0);
    const uint64_t after = cursor_.half();
    if (before / kCreditEvery != after / kCreditEvery) {
      lines_->credit.consumed.store(after, std::memory_order_release);
      sender_->ring();
    }
    next_ += 2;
    ring_.advance();
    // A message that was there at the first look says that the sender is ahead: fetch its next line meanwhile. When it
    // isn't, fetching the line early would only take it away from the sender again.
    streak_ = waited_ ? 0 : streak_ + 1;
    if (streak_ >= kStreak)
      __builtin_prefetch(&lines_->slots[(cursor_.line() + kFetchAhead) % kSlots]);
    else if (streak_ > 0)
      __builtin_prefetch(&line());
    waited_ = false;
  }

 private:
  const SlotLine& line() const { return lines_->slots[cursor_.line()]; }
  ConnectionLines* lines_;
  const std::byte* data_;
  ByteRing ring_;
  Doorbell* sender_;
  LineCursor cursor_;
  uint64_t next_ = 2;    // number of the next message, times 2
  uint64_t word_ = 0;    // its sequence word, as last read
  bool waited_ = false;  // for the message in question
  uint32_t streak_ = 0;  // messages in a row that were there at the first look
};

}  // namespace muster
