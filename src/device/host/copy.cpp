#include <algorithm>
#include <cstring>

#include "device/host/highway_targets.h"
#include "device/host/kernels.h"
#include "device/host/small_copy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/copy.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "device/host/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {
namespace {

// Whole aligned vectors with non-temporal stores; the ends, which share their lines with others, as usual.
void stream_copy(uint8_t* to, const uint8_t* from, size_t bytes) {
  const size_t head = std::min(bytes, (kVectorBytes - misalignment(to)) % kVectorBytes);
  small_copy<kVectorBytes>(to, from, head);
  size_t at = head;
  for (; bytes - at >= 4 * kVectorBytes; at += 4 * kVectorBytes) {
    const VBytes v0 = hn::LoadU(Bytes(), from + at), v1 = hn::LoadU(Bytes(), from + at + kVectorBytes);
    const VBytes v2 = hn::LoadU(Bytes(), from + at + 2 * kVectorBytes);
    const VBytes v3 = hn::LoadU(Bytes(), from + at + 3 * kVectorBytes);
    hn::Stream(v0, Bytes(), to + at);
    hn::Stream(v1, Bytes(), to + at + kVectorBytes);
    hn::Stream(v2, Bytes(), to + at + 2 * kVectorBytes);
    hn::Stream(v3, Bytes(), to + at + 3 * kVectorBytes);
  }
  for (; bytes - at >= kVectorBytes; at += kVectorBytes) {
    hn::Stream(hn::LoadU(Bytes(), from + at), Bytes(), to + at);
  }
  small_copy<kVectorBytes>(to + at, from + at, bytes - at);
}

}  // namespace
}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hwy/cache_control.h"

namespace muster {
namespace {

HWY_EXPORT(stream_copy);

// With several destinations the source is read from memory once and then from the first-level cache.
constexpr size_t kBlock = 16 << 10;

void copy_cached(uint8_t* to, const uint8_t* from, size_t bytes) {
  if (bytes < 64) {
    small_copy<64>(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

void copy_kernel(void* const* destinations, uint32_t ndestinations, const void* source, size_t bytes,
                 uint64_t streamed) {
  const auto* const from = static_cast<const uint8_t*>(source);
  const size_t block = ndestinations == 1 ? bytes : kBlock;
  for (size_t at = 0; at < bytes; at += block) {
    const size_t n = std::min(block, bytes - at);
    for (uint32_t d = 0; d < ndestinations; ++d) {
      if (destinations[d] == source) continue;
      uint8_t* const to = static_cast<uint8_t*>(destinations[d]) + at;
      if (d < 64 && (streamed >> d & 1) != 0) {
        HWY_DYNAMIC_DISPATCH(stream_copy)(to, from + at, n);
      } else {
        copy_cached(to, from + at, n);
      }
    }
  }
  if (streamed != 0) hwy::FlushStream();
}

}  // namespace muster
#endif
