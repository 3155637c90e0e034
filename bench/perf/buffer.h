// Memory for one side of the calls, with room around it that must stay untouched.
#pragma once

#include <cstddef>
#include <vector>

#include "perf/args.h"
#include "perf/gpus.h"

namespace muster::perf {

inline constexpr size_t kGuard = 4096;  // bytes before and behind

class Buffer {
 public:
  Buffer() = default;
  // `bytes` that calls may use, starting `unaligned` bytes off a page boundary; poisoned, so that all pages
  // are there. gpu: whose memory it is with Memory::gpu, for as long as the buffer lives; windows: they will
  // be made of it.
  Buffer(size_t bytes, size_t unaligned, Memory memory, GpuRank* gpu, bool windows);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  void* allocation_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Memory memory_ = Memory::malloc;
  GpuRank* gpu_ = nullptr;
  bool windows_ = false;
  friend class BufferView;
};

// Bytes [begin, end) of a buffer and the guards around them, for the host to read and write: host memory
// itself, or a copy of the GPU's.
class BufferView {
 public:
  enum Content { as_it_is, poisoned };
  BufferView(const Buffer& buffer, size_t begin, size_t end, Content content);

  std::byte* begin() { return begin_; }
  void store();  // what was written goes into the buffer

  // Bytes that differ from the poison in the kGuard bytes before `begin` and behind `end`, which count from
  // this view's begin.
  size_t count_touched_around(size_t begin, size_t end) const;

 private:
  const Buffer& buffer_;
  std::byte* const there_;  // in the buffer, where begin_ is
  const size_t bytes_;
  std::vector<std::byte> copy_;  // guards included; empty on host memory
  std::byte* begin_ = nullptr;
};

}  // namespace muster::perf
