// Nameless files in memory (memfd) that processes share by passing descriptors.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/fd.h"

namespace muster {

// A sparse file of `bytes`, all zero. `what`: for messages, e.g. "shared memory". Throws system_error naming the limit
// that is too low.
Fd create_memory_file(const char* name, std::string_view what, size_t bytes);

}  // namespace muster
