#include "base/text_position.h"

#include <algorithm>

namespace muster {

TextPosition position_of(std::string_view text, size_t offset) {
  text = text.substr(0, std::min(offset, text.size()));
  const size_t line_start = text.rfind('\n');
  return {
      static_cast<int>(std::count(text.begin(), text.end(), '\n')) + 1,
      static_cast<int>(line_start == std::string_view::npos ? text.size() : text.size() - line_start - 1) +
          1};
}

}  // namespace muster
