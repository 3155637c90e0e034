#include "perf/buffer.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "muster/muster.h"
#include "perf/data.h"

namespace muster::perf {

Buffer::Buffer(size_t bytes, size_t unaligned, Memory memory) : bytes_(bytes), memory_(memory) {
  const size_t all = bytes + unaligned + 2 * kGuard;
  if (memory == Memory::alloc) {
    allocation_ = mem_alloc(all);
  } else if (posix_memalign(&allocation_, 4096, all) != 0) {
    allocation_ = nullptr;
    throw std::bad_alloc();
  }
  data_ = static_cast<std::byte*>(allocation_) + kGuard + unaligned;
  Data::poison(allocation_, all);
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(allocation_, other.allocation_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(memory_, other.memory_);
  return *this;
}

Buffer::~Buffer() {
  if (!allocation_) return;
  if (memory_ == Memory::alloc)
    mem_free(allocation_);
  else
    std::free(allocation_);
}

size_t Buffer::count_touched_around(size_t begin, size_t end) const {
  std::byte poison{};
  Data::poison(&poison, 1);
  const auto touched = [&](std::byte b) { return b != poison; };
  return static_cast<size_t>(std::count_if(data_ + begin - kGuard, data_ + begin, touched) +
                             std::count_if(data_ + end, data_ + end + kGuard, touched));
}

}  // namespace muster::perf
