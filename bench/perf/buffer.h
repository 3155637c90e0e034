// Memory for one side of the calls, with room around it that must stay untouched.
#pragma once

#include <cstddef>

#include "perf/args.h"

namespace muster::perf {

inline constexpr size_t kGuard = 4096;  // bytes before and behind

class Buffer {
 public:
  Buffer() = default;
  // `bytes` that calls may use, starting `unaligned` bytes off a page boundary; poisoned, so that all pages
  // are there.
  Buffer(size_t bytes, size_t unaligned, Memory memory);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

  // Bytes that differ from the poison in the kGuard bytes before `begin` and behind `end` (offsets into
  // data()).
  size_t count_touched_around(size_t begin, size_t end) const;

 private:
  void* allocation_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Memory memory_ = Memory::malloc;
};

}  // namespace muster::perf
