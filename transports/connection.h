// A connection: a FIFO of slots in one direction between two ranks, as the executors see it.
//
// Each slot is one control line: sequence, fingerprint, and the message itself if it fits. Longer messages lie in a ring
// of bytes, one behind the other, so that whatever their size the ring is gone round before its memory is used again:
// a line that still lies in the other core's cache costs several times as much to write as one that doesn't. The sender writes lines, the receiver writes the credit line; every line has one writer.
// Whatever the transport, executors work on this memory; shared memory is the memory itself, and a network transport
// moves it when its progress() is called.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/math.h"

namespace muster {

inline constexpr uint32_t kSlots = 32;            // messages a connection holds; a power of two
// Messages after which credit is given: were it one by one, a sender that is ahead would take the credit line away from
// the receiver with every look. A sender that waits has all kSlots under way, so the next credit always comes.
inline constexpr uint32_t kCreditEvery = kSlots / 4;
inline constexpr size_t kInlineBytes = 48;        // a message up to this size travels in the control line alone

struct alignas(kCacheLine) SlotLine {
  std::atomic<uint64_t> sequence;  // number of the message in this slot, from 1; published last
  uint64_t fingerprint;            // which call the message belongs to
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(SlotLine) == kCacheLine);

struct alignas(kCacheLine) CreditLine {
  std::atomic<uint64_t> consumed;  // number of the last message that the receiver is done with
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
    if (next_ <= limit_) [[likely]] return true;
    limit_ = lines_->credit.consumed.load(std::memory_order_acquire) + kSlots;
    return next_ <= limit_;
  }
  // Where the next message of `bytes` is to be written; ready() first.
  std::byte* acquire(size_t bytes) {
    return bytes <= kInlineBytes ? lines_->slots[next_ % kSlots].payload : data_ + ring_.place(bytes);
  }
  void commit(uint64_t fingerprint) {
    SlotLine& line = lines_->slots[next_ % kSlots];
    line.fingerprint = fingerprint;
    line.sequence.store(next_++, std::memory_order_release);
    // The receiver is long done with the next line: take it back now rather than when a message waits for it.
    __builtin_prefetch(&lines_->slots[next_ % kSlots], 1);
    ring_.advance();
    receiver_->ring();
  }

 private:
  ConnectionLines* lines_;
  std::byte* data_;
  ByteRing ring_;
  Doorbell* receiver_;
  uint64_t next_ = 1;        // number of the next message
  uint64_t limit_ = kSlots;  // highest number that may be sent, by the credit last seen
};

// The receiving end. One thread.
class SlotReceiver {
 public:
  SlotReceiver(ConnectionLines* lines, const std::byte* data, size_t slot_bytes, Doorbell* sender)
      : lines_(lines), data_(data), ring_(slot_bytes), sender_(sender) {}

  bool ready() {
    if (line().sequence.load(std::memory_order_acquire) == next_) return true;
    waited_ = true;
    return false;
  }
  uint64_t fingerprint() const { return line().fingerprint; }
  const std::byte* peek(size_t bytes) { return bytes <= kInlineBytes ? line().payload : data_ + ring_.place(bytes); }
  void release() {
    if (next_ % kCreditEvery == 0) {
      lines_->credit.consumed.store(next_, std::memory_order_release);
      sender_->ring();
    }
    ++next_;
    ring_.advance();
    // A message that was there at the first look says that the sender is ahead: fetch its next line meanwhile. When it
    // isn't, fetching the line early would only take it away from the sender again.
    if (!waited_) __builtin_prefetch(&line());
    waited_ = false;
  }

 private:
  const SlotLine& line() const { return lines_->slots[next_ % kSlots]; }
  ConnectionLines* lines_;
  const std::byte* data_;
  ByteRing ring_;
  Doorbell* sender_;
  uint64_t next_ = 1;
  bool waited_ = false;  // for the message in question
};

}  // namespace muster
