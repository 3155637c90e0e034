// What fuzz targets share: taking an input apart, and saying what must hold for all of them.
// A target is one file <what>_fuzz.cpp; its first inputs are the files of corpus/<what>/.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

#include "muster/types.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace muster::fuzz {

inline void require(bool holds, const char* what, int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "line %d: not so: %s\n", line, what);
  std::abort();
}

// Past the end every number is 0 and every text is empty.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}
  bool empty() const { return left_.empty(); }
  uint8_t byte() {
    const std::string_view b = bytes(1);
    return b.empty() ? 0 : static_cast<uint8_t>(b[0]);
  }
  bool flag() { return byte() & 1; }
  std::string_view bytes(size_t most) {
    const std::string_view r = left_.substr(0, most);
    left_.remove_prefix(r.size());
    return r;
  }
  std::string_view rest() { return bytes(left_.size()); }
  std::string_view line() {  // without its end
    const size_t end = left_.find('\n');
    const std::string_view r = bytes(end);
    bytes(1);
    return r;
  }

 private:
  std::string_view left_;
};

// Whether f returned. It may throw, but only an Error of one of these codes, with a text. (What else it
// throws ends the program.)
template <class F>
bool succeeds_or_throws(std::initializer_list<Result> codes, F f) {
  try {
    f();
    return true;
  } catch (const Error& e) {
    bool expected = false;
    for (const Result code : codes) expected = expected || e.code() == code;
    require(expected, name_of(e.code()));
    require(*e.what() != 0, "an error has a text");
    return false;
  }
}

}  // namespace muster::fuzz
