// Words for what options are, shared by `muster doctor` and the reference page.
#pragma once

#include "base/options.h"

namespace muster::tool {

inline const char* words_for(OptionType type) {
  switch (type) {
    case OptionType::flag: return "flag";
    case OptionType::integer: return "number";
    case OptionType::size: return "bytes";
    case OptionType::seconds: return "seconds";
    case OptionType::text: return "text";
    case OptionType::text_or_none: return "text, or empty: none";
    case OptionType::secret: return "text, never shown";
  }
  return "?";
}

}  // namespace muster::tool
