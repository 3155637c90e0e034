// What lies at the beginning of a segment: who shares it, where each of its ranks is in its calls, and the
// communicator's error. It is written by the ranks, and read by them and, for `muster status`, by other
// processes of the same user, of any version: any change below raises kLayout.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/math.h"
#include "transports/connection.h"

namespace muster {

inline constexpr char kSegmentFile[] = "muster";                   // the file's name, as /proc shows it
inline constexpr uint64_t kSegmentMagic = 0x31474553'5453554dULL;  // "MUSTSEG1", whatever the layout
inline constexpr uint32_t kLayout = 3;
inline constexpr size_t kSegmentPage = 4096;  // segments of one file begin at multiples of it
inline constexpr size_t kNameBytes = 64;

struct alignas(kCacheLine) SegmentHead {
  // These stay where they are in every layout.
  uint64_t magic;
  uint32_t layout;
  char version[20];  // of the library that laid it out, zero-terminated

  uint32_t head_bytes, control_bytes;  // sizes of this and of RankControl
  uint32_t nranks;                     // that share it
  uint64_t bytes;                      // of the whole segment; the next one may begin behind it

  alignas(kCacheLine) std::atomic<uint64_t> token;
  std::atomic<uint64_t> gone;  // ranks that use this segment no more
  std::atomic<uint64_t> end;  // the file's first segment: where the next one goes. Room isn't given out twice
  std::atomic<uint64_t> children;  // the same: how many there were

  alignas(kCacheLine) std::atomic<uint64_t> id;  // of the communicator; 0: the lines below aren't written yet
  uint64_t parent;                               // the one it was split from; 0: none
  uint32_t size;                                 // of its ranks, here and elsewhere
  char name[kNameBytes];                         // zero-terminated, cut to fit
};

// One call as its rank published it, so that others can name it. Written before the call's first message.
struct LedgerEntry {
  std::atomic<uint64_t> sequence;  // 1, 2, ...: published last
  std::atomic<uint64_t> shape;     // all of the call but its count, as packed() in src/comm/state.h has it
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> fingerprint;

  struct Values {
    uint64_t sequence, shape, count, fingerprint;
  };
  void write(const Values& v) {
    sequence.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    shape.store(v.shape, std::memory_order_release);
    count.store(v.count, std::memory_order_relaxed);
    fingerprint.store(v.fingerprint, std::memory_order_relaxed);
    sequence.store(v.sequence, std::memory_order_release);
  }
  // Nothing: none yet, or it is being overwritten.
  std::optional<Values> read() const {
    const Values v{sequence.load(std::memory_order_acquire), shape.load(std::memory_order_relaxed), count.load(std::memory_order_relaxed),
                   fingerprint.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    return v.sequence != 0 && sequence.load(std::memory_order_relaxed) == v.sequence ? std::optional(v) : std::nullopt;
  }
};
inline constexpr uint32_t kLedgerEntries = 16;  // a power of two

// What the process of a rank says of it once a second, so that nothing in a call reads a clock. Times are
// CLOCK_MONOTONIC's nanoseconds.
struct RankTimes {
  std::atomic<int64_t> seen_at;                  // the last look
  std::atomic<uint64_t> entered, finished;       // as they were then
  std::atomic<int64_t> entered_at, finished_at;  // the first look that showed them so
};

// A wait that has lasted longer than some 20 ms.
struct RankWait {
  enum Kind : uint32_t {
    none,
    collective,
    messages,
    signals,
    exchange
  };  // the last: split, shrink and the like
  std::atomic<uint32_t> kind;
  std::atomic<int32_t> peer;  // the rank waited for; -1: not one alone
  std::atomic<int64_t> since, seen_at;
};

struct alignas(kCacheLine) RankControl {
  alignas(kCacheLine) Doorbell doorbell;
  alignas(kCacheLine) std::atomic<uint64_t> token;  // what this rank wrote to prove that it sees this memory
  std::atomic<uint64_t> entered;                    // sequence of the last call this rank started
  std::atomic<uint64_t> finished;                   // and of the last one that it came to the end of
  std::atomic<uint32_t> left;                       // 1: destroyed its communicator
  std::atomic<uint32_t> in_windows;                 // 1: may be using other ranks' buffers
  alignas(kCacheLine) LedgerEntry ledger[kLedgerEntries];
  alignas(kCacheLine) RankTimes times;
  std::atomic<uint64_t> start;  // of its process, see ProcessStatus
  std::atomic<int32_t> pid;     // as it numbers itself; 0: none of this is written yet
  std::atomic<int32_t> rank;
  alignas(kCacheLine) RankWait wait;
};

// The first error of the communicator; every rank on the host reports the same one.
struct alignas(kCacheLine) ErrorRecord {
  std::atomic<uint32_t> state;  // 0 none, 1 being written, 2 set
  int32_t code;
  uint32_t revoked;  // 1: somebody ended this communicator's calls, but others may be made of it
  char message[2036];
};

inline constexpr size_t kErrorAt = sizeof(SegmentHead);
inline constexpr size_t kControlsAt = kErrorAt + sizeof(ErrorRecord);
static_assert(offsetof(SegmentHead, magic) == 0 && offsetof(SegmentHead, layout) == 8 &&
              offsetof(SegmentHead, version) == 12);

}  // namespace muster
