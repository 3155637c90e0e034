// Where in a text something is, as editors count.
#pragma once

#include <string_view>

namespace muster {

struct TextPosition {
  int line = 1, column = 1;
};
TextPosition position_of(std::string_view text, size_t offset);

}  // namespace muster
