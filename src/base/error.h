// Raising errors: fail(Result::invalid_argument, "root {} is not in 0..{}", root, n - 1).
// A message tells what, where, the numbers, and the remedy.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "muster/types.h"

namespace muster {

template <class... Args>
[[noreturn]] void fail(Result code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

// The code of an error that came as a number from another rank: internal_error for numbers that no error has.
Result error_code(int number);

// "ENOSPC (No space left on device)"
std::string describe_errno(int error);
// Of connect(): with what is behind it where the name misleads.
std::string describe_connect_error(int error);

// Throws system_error: "<what>: <errno by name>. <remedy>"
[[noreturn]] void fail_errno(int error, std::string_view what, std::string_view remedy = {});

}  // namespace muster
