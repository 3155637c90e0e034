// What the words and numbers of a topology's output mean, and where they come from.
#pragma once

#include <string>

namespace muster::topology {

std::string explanation();

}  // namespace muster::topology
