// printf of device code: its arguments lie in a buffer, each at its natural alignment.
#include <cstdio>

#include "runtime.h"

namespace cuda_sim {
namespace {

class Arguments {
 public:
  explicit Arguments(const char* bytes) : bytes_(bytes) {}
  template <class T>
  T next() {
    offset_ = round_up(offset_, sizeof(T));
    T value;
    memcpy(&value, bytes_ + offset_, sizeof value);
    offset_ += sizeof value;
    return value;
  }

 private:
  const char* bytes_;
  size_t offset_ = 0;
};

template <class T>
std::string formatted(const std::string& specification, T value) {
  char text[512];
  snprintf(text, sizeof text, specification.c_str(), value);
  return text;
}

std::string convert(std::string specification, char conversion, bool wide, Arguments& arguments) {
  switch (conversion) {
    case 'd':
    case 'i':
      return formatted(specification + "ll" + conversion,
                       wide ? arguments.next<long long>() : arguments.next<int>());
    case 'o':
    case 'u':
    case 'x':
    case 'X':
      return formatted(specification + "ll" + conversion,
                       wide ? arguments.next<unsigned long long>() : arguments.next<unsigned>());
    case 'c':
      return formatted(specification + conversion, arguments.next<int>());
    case 's':
      return formatted(specification + conversion, mapped(arguments.next<char*>()));
    case 'p':
      return formatted(specification + conversion, arguments.next<void*>());
    default:
      return formatted(specification + conversion, arguments.next<double>());
  }
}

}  // namespace

extern "C" void csim_printf(const char* format, const char* packed) {
  Arguments arguments(mapped(packed));
  std::string out;
  for (const char* f = mapped(format); *f;) {
    if (*f != '%') {
      out += *f++;
      continue;
    }
    if (f[1] == '%') {
      out += '%';
      f += 2;
      continue;
    }
    std::string specification(1, *f++);
    int longs = 0;
    for (; *f && !strchr("diouxXeEfFgGaAcsp", *f); f++) {
      if (*f == 'l')
        longs++;
      else if (strchr("jzt", *f))
        longs = 2;
      else if (*f == '*')
        specification += std::to_string(arguments.next<int>());
      else if (*f != 'h')
        specification += *f;
    }
    if (*f) out += convert(specification, *f++, longs > 0, arguments);
  }
  fwrite(out.data(), 1, out.size(), stdout);
  fflush(stdout);
}

}  // namespace cuda_sim
