// Where commands that make one text put it: standard output, or a file.
#pragma once

#include <cerrno>
#include <cstdio>
#include <string>

#include "base/error.h"

namespace muster::tool {

// Standard output may be a full disk: what isn't written is an error.
inline void say(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail_errno(errno, "can't write the output");
}

// Anew, or over what is there; the file may be a pipe or a device.
inline void write_file(const std::string& name, const std::string& text) {
  std::FILE* const file = std::fopen(name.c_str(), "we");
  if (!file) fail_errno(errno, "can't open " + name);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = errno;
  if (std::fclose(file) != 0 || !written) fail_errno(written ? errno : error, "can't write " + name);
}

}  // namespace muster::tool
