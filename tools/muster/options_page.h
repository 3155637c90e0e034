// The reference page of options, docs/options.md, made from the registry.
#pragma once

#include <string>

namespace muster::tool {

std::string options_page();

}  // namespace muster::tool
