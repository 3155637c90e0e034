#include "plan/protocol.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace muster {
namespace {

std::optional<Protocol> protocol_named(const std::string& name) {
  for (const Protocol p : kProtocols)
    if (lower(name) == lower(name_of(p))) return p;
  return std::nullopt;
}

}  // namespace

const char* name_of(Protocol p) {
  switch (p) {
    case Protocol::ll:
      return "LL";
    case Protocol::ll128:
      return "LL128";
    case Protocol::simple:
      return "simple";
  }
  return "";
}

std::vector<Protocol> protocols_of(std::string_view text) {
  std::string_view list = trim(text);
  const bool inverted = list.starts_with('^');
  if (inverted) list.remove_prefix(1);
  std::vector<Protocol> named, wanted;
  for (const std::string_view part : split(list, ',')) {
    const std::string_view word = trim(part);
    if (word.empty()) continue;
    const std::optional<Protocol> p = protocol_named(std::string(word));
    if (!p)
      fail(Result::invalid_argument, "'{}' is no protocol. There are: LL, LL128, simple",
           printable(word, 60));
    named.push_back(*p);
  }
  for (const Protocol p : kProtocols) {
    const bool is_named = std::find(named.begin(), named.end(), p) != named.end();
    if (named.empty() || is_named != inverted) wanted.push_back(p);
  }
  if (wanted.empty())
    fail(Result::invalid_argument, "'{}' leaves no protocol. There are: LL, LL128, simple",
         printable(text, 60));
  return wanted;
}

}  // namespace muster
