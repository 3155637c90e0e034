#include "base/error.h"

#include <cerrno>
#include <cstring>

namespace muster {

Error::~Error() = default;

Result error_code(int number) {
  const auto code = static_cast<Result>(number);
  const bool known = number >= 0 && number <= static_cast<int>(Result::timeout);
  return known && code != Result::success && code != Result::in_progress ? code : Result::internal_error;
}

std::string describe_errno(int error) {
  const char* name = strerrorname_np(error);
  const char* text = strerrordesc_np(error);
  return fmt::format("{} ({})", name ? name : std::to_string(error), text ? text : "unknown error");
}

std::string describe_connect_error(int error) {
  return describe_errno(error) + (error == EADDRNOTAVAIL ? ": no local port is free; see net.ipv4.ip_local_port_range" : "");
}

void fail_errno(int error, std::string_view what, std::string_view remedy) {
  if (remedy.empty()) fail(Result::system_error, "{}: {}", what, describe_errno(error));
  fail(Result::system_error, "{}: {}. {}", what, describe_errno(error), remedy);
}

}  // namespace muster
