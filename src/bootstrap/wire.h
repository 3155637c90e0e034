// Messages as bytes: integers little-endian, texts with a 32-bit length in front.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

class Writer {
 public:
  Writer& u8(uint8_t v) { return integer(v); }
  Writer& u16(uint16_t v) { return integer(v); }
  Writer& u32(uint32_t v) { return integer(v); }
  Writer& u64(uint64_t v) { return integer(v); }
  Writer& i32(int32_t v) { return integer(static_cast<uint32_t>(v)); }
  Writer& raw(std::string_view bytes) {
    out_ += bytes;
    return *this;
  }
  Writer& text(std::string_view s) { return u32(static_cast<uint32_t>(s.size())).raw(s); }
  std::string take() { return std::move(out_); }

 private:
  template <class T>
  Writer& integer(T v) {
    for (size_t i = 0; i < sizeof v; ++i) out_ += static_cast<char>(static_cast<uint64_t>(v) >> (8 * i));
    return *this;
  }
  std::string out_;
};

// Reads what Writer wrote. Past the end every value is zero or empty and ok() is false: ask once, after the
// last value, with at_end() if nothing may follow.
class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}
  uint8_t u8() { return integer<uint8_t>(); }
  uint16_t u16() { return integer<uint16_t>(); }
  uint32_t u32() { return integer<uint32_t>(); }
  uint64_t u64() { return integer<uint64_t>(); }
  int32_t i32() { return static_cast<int32_t>(u32()); }
  std::string_view raw(size_t bytes) {
    if (bytes > in_.size()) {
      reject();
      return {};
    }
    const auto r = in_.substr(0, bytes);
    in_.remove_prefix(bytes);
    return r;
  }
  std::string_view rest() { return raw(in_.size()); }
  std::string text() { return std::string(raw(u32())); }
  bool ok() const { return ok_; }
  bool at_end() const { return in_.empty(); }
  void reject() {  // what was read can't have been written
    ok_ = false;
    in_ = {};
  }

 private:
  template <class T>
  T integer() {
    const auto b = raw(sizeof(T));
    uint64_t v = 0;
    for (size_t i = 0; i < b.size(); ++i)
      v |= static_cast<uint64_t>(static_cast<unsigned char>(b[i])) << (8 * i);
    return static_cast<T>(v);
  }
  std::string_view in_;
  bool ok_ = true;
};

}  // namespace muster
