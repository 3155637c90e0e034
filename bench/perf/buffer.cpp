#include "perf/buffer.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "muster/muster.h"
#include "perf/data.h"

namespace muster::perf {

Buffer::Buffer(size_t bytes, size_t unaligned, Memory memory, GpuRank* gpu, bool windows)
    : bytes_(bytes), memory_(memory), gpu_(gpu), windows_(windows) {
  const size_t all = bytes + unaligned + 2 * kGuard;
  if (memory == Memory::gpu) {
    allocation_ = gpu->allocate(all, windows);
  } else if (memory == Memory::alloc) {
    allocation_ = mem_alloc(all);
  } else if (posix_memalign(&allocation_, 4096, all) != 0) {
    allocation_ = nullptr;
    throw std::bad_alloc();
  }
  data_ = static_cast<std::byte*>(allocation_) + kGuard + unaligned;
  if (memory == Memory::gpu)
    gpu->fill(allocation_, Data::kPoison, all);
  else
    Data::poison(allocation_, all);
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(allocation_, other.allocation_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(memory_, other.memory_);
  std::swap(gpu_, other.gpu_);
  std::swap(windows_, other.windows_);
  return *this;
}

Buffer::~Buffer() {
  if (!allocation_) return;
  if (memory_ == Memory::gpu)
    gpu_->release(allocation_, windows_);
  else if (memory_ == Memory::alloc)
    mem_free(allocation_);
  else
    std::free(allocation_);
}

BufferView::BufferView(const Buffer& buffer, size_t begin, size_t end, Content content)
    : buffer_(buffer), there_(buffer.data() + begin), bytes_(end - begin), begin_(there_) {
  const size_t all = bytes_ + 2 * kGuard;
  if (buffer.memory_ == Memory::gpu) {
    copy_.resize(all);
    begin_ = copy_.data() + kGuard;
    if (content == as_it_is) buffer.gpu_->download(copy_.data(), there_ - kGuard, all);
  }
  if (content == poisoned) Data::poison(begin_ - kGuard, all);
}

void BufferView::store() {
  if (!copy_.empty()) buffer_.gpu_->upload(there_ - kGuard, copy_.data(), copy_.size());
}

size_t BufferView::count_touched_around(size_t begin, size_t end) const {
  const auto touched = [](std::byte b) { return b != std::byte{Data::kPoison}; };
  return static_cast<size_t>(std::count_if(begin_ + begin - kGuard, begin_ + begin, touched) +
                             std::count_if(begin_ + end, begin_ + end + kGuard, touched));
}

}  // namespace muster::perf
