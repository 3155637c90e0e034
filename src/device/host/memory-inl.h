// Bytes of any address to and from vectors: whole vectors, the first n bytes of one, and non-temporal stores.
// Nothing outside the given bytes is read or written. Included once per instruction set.
#if defined(MUSTER_MEMORY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_MEMORY_INL_H_
#undef MUSTER_MEMORY_INL_H_
#else
#define MUSTER_MEMORY_INL_H_
#endif

#include <cstring>

#include "device/host/codecs-inl.h"

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
  // Through registers: bytes written to a buffer one way and read back another way would wait for the store.
#if HWY_TARGET == HWY_AVX2
  HWY_INLINE VBytes load(const uint8_t* p) const {
    if (n < 16) return hn::ZeroExtendVector(Bytes(), load16(p, n));
    return hn::Combine(Bytes(), load16(p + 16, n - 16), hn::LoadU(Bytes16(), p));
  }
  HWY_INLINE void store(VBytes v, uint8_t* p) const {
    if (n < 16) return store16(hn::LowerHalf(Bytes16(), v), p, n);
    hn::StoreU(hn::LowerHalf(Bytes16(), v), Bytes16(), p);
    store16(hn::UpperHalf(Bytes16(), v), p + 16, n - 16);
  }
#else
  static_assert(kVectorBytes == 16);
  HWY_INLINE VBytes load(const uint8_t* p) const { return load16(p, n); }
  HWY_INLINE void store(VBytes v, uint8_t* p) const { store16(v, p, n); }
#endif

 private:
  using Bytes16 = hn::FixedTag<uint8_t, 16>;
  using VBytes16 = hn::Vec<Bytes16>;
  using Pair = hn::Repartition<uint64_t, Bytes16>;

  static HWY_INLINE VBytes16 load16(const uint8_t* p, size_t bytes) {  // 0 .. 15
    const uint64_t lo = bytes > 8 ? read<uint64_t>(p) : load_up_to_8(p, bytes);
    const uint64_t hi = bytes > 8 ? read<uint64_t>(p + bytes - 8) >> 8 * (16 - bytes) : 0;
    return hn::BitCast(Bytes16(), hn::InterleaveLower(hn::Set(Pair(), lo), hn::Set(Pair(), hi)));
  }
  static HWY_INLINE void store16(VBytes16 v, uint8_t* p, size_t bytes) {
    const auto pair = hn::BitCast(Pair(), v);
    const uint64_t lo = hn::GetLane(pair);
    if (bytes <= 8) return store_up_to_8(lo, p, bytes);
    const uint64_t hi = hn::ExtractLane(pair, 1);
    write(lo, p);
    write(lo >> 8 * (bytes - 8) | hi << 8 * (16 - bytes), p + bytes - 8);
  }
  // Two reads or writes that may overlap: in the overlap both hold the same bytes. Little-endian.
  static HWY_INLINE uint64_t load_up_to_8(const uint8_t* p, size_t bytes) {
    if (bytes >= 4) return read<uint32_t>(p) | uint64_t{read<uint32_t>(p + bytes - 4)} << 8 * (bytes - 4);
    if (bytes >= 2) return read<uint16_t>(p) | uint64_t{read<uint16_t>(p + bytes - 2)} << 8 * (bytes - 2);
    return bytes == 1 ? *p : 0;
  }
  static HWY_INLINE void store_up_to_8(uint64_t x, uint8_t* p, size_t bytes) {
    if (bytes >= 4) {
      write(static_cast<uint32_t>(x), p);
      write(static_cast<uint32_t>(x >> 8 * (bytes - 4)), p + bytes - 4);
    } else if (bytes >= 2) {
      write(static_cast<uint16_t>(x), p);
      write(static_cast<uint16_t>(x >> 8 * (bytes - 2)), p + bytes - 2);
    } else if (bytes == 1) {
      *p = static_cast<uint8_t>(x);
    }
  }
  template <class T>
  static HWY_INLINE T read(const uint8_t* p) {
    T x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  template <class T>
  static HWY_INLINE void write(T x, uint8_t* p) {
    std::memcpy(p, &x, sizeof x);
  }
#endif
};

HWY_INLINE size_t misalignment(const void* p) { return reinterpret_cast<uintptr_t>(p) % kVectorBytes; }

}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
