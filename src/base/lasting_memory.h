// Ranges of this process's memory that last: while one is known here, the same pages lie at its addresses, so
// that what was made of them, such as an adapter's registration, is still of them. The library is told where
// they begin and end to exist: memory of mem_alloc until mem_free, and what the program registers until it
// deregisters it (ncclCommRegister, windows). All other memory may be unmapped, and other memory be mapped
// there, without a word.
//
// Each range has a number that is never used again, its life. What is kept of a range is kept by life, and
// found by asking find() anew each time: so a range that ended is never mistaken for one that came to the
// same place.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <shared_mutex>
#include <span>
#include <unordered_map>

namespace muster {

class LastingMemory {
 public:
  using Span = std::span<const std::byte>;
  struct Range {
    uintptr_t begin = 0, end = 0;
    uint64_t life = 0;    // 0: none
    bool shared = false;  // a mapping that fork() leaves alone; other pages may be copied when either process
                          // writes to them
    bool holds(const void* p, size_t bytes) const {
      const auto at = reinterpret_cast<uintptr_t>(p);
      return at >= begin && at <= end && bytes <= end - at;
    }
  };

  // `last_life`: numbers begin behind it.
  explicit LastingMemory(uint64_t last_life = 0) : last_life_(last_life) {}
  // Of this process; a child of fork() begins with none.
  static LastingMemory& of_process();

  // Its life. Ranges may overlap. `owner`: for end_all_of; null: nobody.
  uint64_t add(Span range, bool shared, const void* owner);
  void end(uint64_t life);  // one that ended before may be ended again
  void end_all_of(const void* owner);
  void end_within(Span range);  // all that have a byte of it

  // A range that holds all of these bytes. Of more than a few nested ones it may find none.
  Range find(const void* p, size_t bytes) const;
  bool lives(uint64_t life) const;
  // Changes whenever something ends.
  uint64_t ended() const { return ended_.load(std::memory_order_acquire); }

 private:
  struct Known {
    Range range;
    const void* owner;
  };
  using ByBegin = std::multimap<uintptr_t, Known>;
  void erase(ByBegin::iterator it);

  mutable std::shared_mutex mutex_;
  ByBegin by_begin_;
  std::unordered_map<uint64_t, ByBegin::iterator> by_life_;
  uint64_t last_life_;
  std::atomic<uint64_t> ended_{0};
};

}  // namespace muster
