#include "comm/problem.h"

#include <charconv>
#include <optional>

namespace muster {

std::string problem_of(const std::exception& e) {
  const auto* error = dynamic_cast<const Error*>(&e);
  return fmt::format("{} {}", static_cast<int>(error ? error->code() : Result::system_error), e.what());
}

void throw_first(std::span<const std::string> problems) {
  std::optional<Error> reason;
  for (const std::string& p : problems) {
    if (p.empty()) continue;
    int code = static_cast<int>(Result::internal_error);
    std::from_chars(p.data(), p.data() + p.size(), code);
    if (!reason || (reason->code() == Result::remote_error && code != static_cast<int>(Result::remote_error)))
      reason.emplace(error_code(code), p.substr(p.find(' ') + 1));
  }
  if (reason) throw *reason;
}

}  // namespace muster
