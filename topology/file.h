// Files that people name.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace muster::topology {

// The text of a regular file ("-": of standard input). Refused, without waiting: directories, FIFOs, devices
// and what isn't there; and what is longer than `most` bytes. Throws invalid_argument or system_error.
std::string load_file(const std::string& path, size_t most = size_t{64} << 20);

// Gives the text of a file that another one names.
using Loader = std::function<std::string(const std::string& path)>;

}  // namespace muster::topology
