#include "parallel/block_quantise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "parallel/element_type.h"

namespace muster {
namespace {

template <class Element>
float scale_of(const Element* x, size_t n) {
  float most = 0;
  bool finite = true;
  for (size_t i = 0; i < n; ++i) {
    const float magnitude = std::fabs(to_float(x[i]));
    finite = finite && std::isfinite(magnitude);
    most = std::max(most, magnitude);
  }
  return finite ? most / 127 : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

size_t quantised_bytes(size_t elements, size_t block) {
  return begin_of_scales(elements) + ceil_div(elements, block) * sizeof(float);
}

void quantise(const void* from, DataType type, size_t elements, size_t block, void* to) {
  auto* const q = static_cast<int8_t*>(to);
  auto* const scales = reinterpret_cast<float*>(q + begin_of_scales(elements));
  std::fill(q + elements, reinterpret_cast<int8_t*>(scales), int8_t{0});
  with_element(type, [&]<class E>() {
    const E* const x = static_cast<const E*>(from);
    for (size_t begin = 0; begin < elements; begin += block) {
      const size_t n = std::min(block, elements - begin);
      const float scale = scale_of(x + begin, n);
      scales[begin / block] = scale;
      // Nothing to divide by: zeros, a scale that is none, or values so small that their scale is 0.
      if (!(scale > 0)) {
        std::fill_n(q + begin, n, int8_t{0});
        continue;
      }
      for (size_t i = begin; i < begin + n; ++i)
        q[i] = static_cast<int8_t>(std::clamp(std::nearbyint(to_float(x[i]) / scale), -127.0f, 127.0f));
    }
  });
}

void dequantise(const void* from, DataType type, size_t elements, size_t block, void* to) {
  const auto* const q = static_cast<const int8_t*>(from);
  const auto* const scales = reinterpret_cast<const float*>(q + begin_of_scales(elements));
  with_element(type, [&]<class E>() {
    E* const x = static_cast<E*>(to);
    for (size_t i = 0; i < elements; ++i) x[i] = from_float<E>(static_cast<float>(q[i]) * scales[i / block]);
  });
}

}  // namespace muster
