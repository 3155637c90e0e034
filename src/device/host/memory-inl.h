// Bytes of any address to and from vectors: whole vectors, the first n bytes of one, and non-temporal stores.
// Nothing outside the given bytes is read or written. Included once per instruction set.
#if defined(MUSTER_MEMORY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_MEMORY_INL_H_
#undef MUSTER_MEMORY_INL_H_
#else
#define MUSTER_MEMORY_INL_H_
#endif

#include "device/host/codecs-inl.h"
#include "device/host/small_copy.h"

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {

struct WholeVector {
  HWY_INLINE VBytes load(const uint8_t* p) const { return hn::LoadU(Bytes(), p); }
  HWY_INLINE void store(VBytes v, uint8_t* p) const { hn::StoreU(v, Bytes(), p); }
};

struct FirstBytes {
  size_t n;  // 1 .. kVectorBytes - 1

#if HWY_TARGET == HWY_AVX3
  HWY_INLINE VBytes load(const uint8_t* p) const {
    return hn::MaskedLoad(hn::FirstN(Bytes(), n), Bytes(), p);
  }
  HWY_INLINE void store(VBytes v, uint8_t* p) const {
    hn::BlendedStore(v, hn::FirstN(Bytes(), n), Bytes(), p);
  }
#else
  HWY_INLINE VBytes load(const uint8_t* p) const {
    HWY_ALIGN uint8_t buffer[kVectorBytes];
    hn::Store(hn::Zero(Bytes()), Bytes(), buffer);
    small_copy<kVectorBytes>(buffer, p, n);
    return hn::Load(Bytes(), buffer);
  }
  HWY_INLINE void store(VBytes v, uint8_t* p) const {
    HWY_ALIGN uint8_t buffer[kVectorBytes];
    hn::Store(v, Bytes(), buffer);
    small_copy<kVectorBytes>(p, buffer, n);
  }
#endif
};

HWY_INLINE size_t misalignment(const void* p) { return reinterpret_cast<uintptr_t>(p) % kVectorBytes; }

}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
