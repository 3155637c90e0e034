// Standard output of commands that print one text.
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

}  // namespace muster::tool
